//! Writes ../src/proto.rs out of ../../provider.binpb, without protoc.

use std::{env, error::Error, fs, path::Path};

use prost::Message;
use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let descriptor = fs::read(library.join("../provider.binpb"))?;
    let protocol = prost_types::FileDescriptorSet::decode(&descriptor[..])?;
    let out = env::temp_dir().join(format!("countersign-generate-{}", std::process::id()));
    fs::create_dir_all(&out)?;
    tonic_prost_build::configure().build_client(false).build_transport(false).emit_package(true).out_dir(&out).compile_fds(protocol)?;
    let code = fs::read(out.join("countersign.provider.v1.rs"))?;
    fs::remove_dir_all(&out)?;
    // A test in Go compares the hash.
    let head = format!("// Made by ../generate out of provider.binpb, SHA-256 {:x}.\n", Sha256::digest(&descriptor));
    fs::write(library.join("src/proto.rs"), [head.as_bytes(), &code].concat())?;
    Ok(())
}
