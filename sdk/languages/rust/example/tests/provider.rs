use std::{fs, path::Path};

use countersign_provider::conformance;
use serde_json::Value;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Starts a server in the place of your CA, so that the tests need no network, and returns the
/// settings that lead to it. Without settings, the suite uses those of kit.yaml.
fn start_ca() -> Option<Value> {
    None
}

/// Runs the suite on the program, once your CA's client is in src/main.rs.
#[test]
fn conformance() {
    check_stand_in();
    let kit = Path::new(HERE).join("kit.yaml");
    let told = conformance::run(env!("CARGO_BIN_EXE_countersign-provider-acme"), &kit.to_string_lossy(), start_ca().as_ref());
    println!("{}", told.unwrap_or_else(|e| panic!("{e}")));
}

fn check_stand_in() {
    for entry in fs::read_dir(Path::new(HERE).join("src")).expect("the folder src") {
        let path = entry.expect("a file of src").path();
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let code = fs::read_to_string(&path).expect("the code");
        assert!(
            !code.contains("testing::Ca"),
            "{}: the function open signs with a CA for tests, which no peer trusts: \
             put your CA's client in its place (step 4 of docs/write-a-provider.md)",
            path.file_name().unwrap_or_default().display()
        );
    }
}
