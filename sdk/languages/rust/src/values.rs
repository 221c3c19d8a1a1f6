//! Types of settings that are written as text and read as something else.

use std::{
    borrow::Cow,
    fs,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    time::Duration,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::Error;

const MAX_FILE: u64 = 1 << 20;
const EVERY: Duration = Duration::from_secs(1);
const UNITS: [(&str, f64); 7] = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// A duration, written as `90s`, `30m` or `1h30m`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Period(pub Duration);

/// An https URL without user, query and fragment, as it is written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Url(String);

/// The path of a file: a regular one of at most 1 MiB.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct File(String);

impl Period {
    fn parse(text: &str) -> Option<Self> {
        let mut seconds = 0.0;
        let mut rest = text;
        while !rest.is_empty() && text != "0" {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|&at| at > 0)?;
            let letters = rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| digits + at);
            let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[digits..letters])?;
            seconds += rest[..digits].parse::<f64>().ok().filter(|_| !rest.starts_with('.'))? * unit;
            rest = &rest[letters..];
        }
        Duration::try_from_secs_f64(seconds).ok().filter(|_| !text.is_empty()).map(Period)
    }
}

/// For a default.
impl From<&str> for Url {
    fn from(text: &str) -> Self {
        Url(text.to_owned())
    }
}

/// For a default.
impl From<&str> for File {
    fn from(path: &str) -> Self {
        File(path.to_owned())
    }
}

impl Url {
    /// The URL, with more of a path behind its own.
    #[must_use]
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.0.trim_end_matches('/'))
    }

    fn fits(text: &str) -> bool {
        let Some(rest) = text.strip_prefix("https://") else { return false };
        let host = rest.split('/').next().unwrap_or_default();
        !host.is_empty() && !host.contains('@') && !rest.contains(['?', '#'])
    }
}

impl File {
    /// Reads the file, and does not wait at a named pipe.
    ///
    /// # Errors
    /// [`crate::Reason::Unavailable`].
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        self.content().map_err(|e| Error::unavailable(format!("failed to read {}: {}", self.0, e.kind())))
    }

    fn content(&self) -> io::Result<Vec<u8>> {
        let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = fs::OpenOptions::new().read(true).custom_flags(nonblock).open(&self.0)?;
        let info = file.metadata()?;
        if !info.is_file() || info.len() > MAX_FILE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut content = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Waits until the file has another content than this one, and returns that. It looks each
    /// second, and passes over failures, as while the file is replaced.
    pub async fn changed(&self, content: &[u8]) -> Vec<u8> {
        loop {
            match self.read() {
                Ok(now) if now != content => return now,
                _ => tokio::time::sleep(EVERY).await,
            }
        }
    }
}

/// Returns what a value has to be if it is not.
pub(crate) fn wanted(schema: &Value, value: &Value) -> Option<&'static str> {
    let text = value.as_str()?;
    let (fits, takes) = match schema["format"].as_str()? {
        "go-duration" => (Period::parse(text).is_some(), "a duration, 0 or more with a unit, such as 90s or 24h"),
        "uri" => (Url::fits(text), "a URL such as https://ca.example.com:8443/path"),
        "path" => (!text.is_empty() && !text.contains('\0'), "the path of a file such as /etc/ca/file"),
        _ => return None,
    };
    (!fits).then_some(takes)
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Period::parse(&text).ok_or_else(|| de::Error::custom("want a duration"))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}s", self.0.as_secs_f64()))
    }
}

// The schemas are those that Go's library writes for the same settings.

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = r"^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$";
        json_schema!({"type": "string", "format": "go-duration", "pattern": pattern, "examples": ["90s", "24h"]})
    }
}

impl JsonSchema for Url {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Url".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^(https)://[^/?#@]+(/[^?#]*)?$";
        json_schema!({"type": "string", "format": "uri", "pattern": pattern, "examples": ["https://ca.example.com:8443/path"]})
    }
}

impl JsonSchema for File {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "File".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "path", "minLength": 1, "examples": ["/etc/ca/file"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, want) in [("90s", Some(90.0)), ("1h30m", Some(5400.0)), ("1.5ms", Some(0.0015)), ("5µs", Some(5e-6)), ("0", Some(0.0))]
        {
            assert_eq!(Period::parse(text), want.map(|s| Period(Duration::from_secs_f64(s))), "{text}");
        }
        for text in ["", "90", "-1s", "s", "1d", ".5s", "1s ", "1e3s"] {
            assert_eq!(Period::parse(text), None, "{text}");
        }
    }

    #[test]
    fn url_has_host_and_path_alone() {
        for (text, fits) in [
            ("https://ca.example.org", true),
            ("https://ca:8443/a/b/", true),
            ("http://ca", false),
            ("https://", false),
            ("https://me:sesame@ca", false),
            ("https://ca?x=1", false),
            ("https://ca/#x", false),
        ] {
            assert_eq!(Url::fits(text), fits, "{text}");
        }
        assert_eq!(Url::from("https://ca/a/").at("/sign"), "https://ca/a/sign");
    }

    #[tokio::test]
    async fn changed_file_is_read() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("countersign-values-{}", std::process::id()));
        let file = File::from(&*path.to_string_lossy());
        assert!(file.read().is_err());
        assert!(File::from("/dev/zero").read().is_err());
        fs::write(&path, "a")?;
        assert_eq!(file.changed(b"").await, b"a");
        let (changed, written) = tokio::join!(file.changed(b"a"), async { fs::write(&path, "b") });
        fs::remove_file(&path)?;
        written?;
        assert_eq!(changed, b"b");
        Ok(())
    }
}
