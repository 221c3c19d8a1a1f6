//! Runs the conformance suite on a provider's program.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{self, Command, Output},
};

use serde_json::Value;

/// Runs the conformance suite, `countersign provider test`, on a provider's program and returns what
/// it prints. `kit` is the path of a kit file; settings replace its.
///
/// # Errors
/// What the suite prints if a check fails, or why it did not run: `countersign` must be on the PATH.
pub fn run(program: &str, kit: &str, settings: Option<&Value>) -> Result<String, String> {
    let file = settings.map(Settings::write).transpose().map_err(|e| format!("failed to write the settings: {e}"))?;
    let mut command = Command::new("countersign");
    command.args(["provider", "test", program, "--quiet", "--kit", kit]);
    if let Some(Settings(path)) = &file {
        command.arg("--settings").arg(path);
    }
    match command.output() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err("failed to run countersign: put it in a folder of the PATH".to_owned()),
        Err(e) => Err(format!("failed to run countersign: {e}")),
        Ok(done) if done.status.success() => Ok(text(&done)),
        Ok(done) => Err(format!("the conformance suite failed:\n{}", text(&done))),
    }
}

fn text(done: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
}

/// A file with settings, which may have secrets; it is removed with the value.
struct Settings(PathBuf);

impl Settings {
    fn write(settings: &Value) -> io::Result<Self> {
        let path = Path::new(&std::env::temp_dir()).join(format!("conformance-{}.json", process::id()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let written = Settings(path);
        file.write_all(settings.to_string().as_bytes())?;
        Ok(written)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
