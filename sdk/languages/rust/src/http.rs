//! HTTP replies of a CA that are not what was asked for, as the errors that they mean.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::{Error, Reason};

const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Error {
    /// The error that a CA's HTTP status other than 2xx stands for, 202 included: 202
    /// [`Reason::Pending`], 401 [`Reason::Unauthenticated`], 403 [`Reason::Denied`], 409
    /// [`Reason::Aborted`], 425 and 429 [`Reason::RateLimited`], 500 [`Reason::Internal`], 408 and
    /// other 5xx [`Reason::Unavailable`], all else [`Reason::Invalid`]. A status that calls the
    /// request wrong counts as unavailable if the body is not a JSON object: a proxy answered; for
    /// an API with other errors, give `b"{}"`. `retry_after` is the header of that name; `text` is
    /// what the CA said, which must be clean: see [`crate::clean_text`].
    #[must_use]
    pub fn http(status: u16, retry_after: Option<&str>, body: &[u8], text: &str) -> Self {
        let said = if text.is_empty() { String::new() } else { format!(": {text}") };
        let error = Error::new(reason(status, body), format!("the CA answered with {status}{said}"));
        match retry_after.and_then(|header| wait(header, SystemTime::now())) {
            Some(after) => error.retry_after(after),
            None => error,
        }
    }
}

fn reason(status: u16, body: &[u8]) -> Reason {
    match status {
        202 => Reason::Pending,
        401 => Reason::Unauthenticated,
        403 => Reason::Denied,
        409 => Reason::Aborted,
        425 | 429 => Reason::RateLimited,
        500 => Reason::Internal,
        408 | 501.. => Reason::Unavailable,
        400.. if !matches!(serde_json::from_slice(body), Ok(Value::Object(_))) => Reason::Unavailable,
        _ => Reason::Invalid,
    }
}

/// Reads Retry-After: seconds, or the time at which to come back (RFC 9110, section 10.2.3).
fn wait(header: &str, now: SystemTime) -> Option<Duration> {
    let wait = if header.bytes().all(|b| b.is_ascii_digit()) {
        Duration::from_secs(header.parse().ok()?)
    } else {
        httpdate::parse_http_date(header).ok()?.duration_since(now).ok()?
    };
    Some(wait.min(LONGEST)).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_reason() {
        for (status, body, want) in [
            (202, "", Reason::Pending),
            (302, "", Reason::Invalid),
            (400, "{}", Reason::Invalid),
            (404, "<html>", Reason::Unavailable),
            (404, "[]", Reason::Unavailable),
            (401, "", Reason::Unauthenticated),
            (403, "", Reason::Denied),
            (408, "", Reason::Unavailable),
            (409, "", Reason::Aborted),
            (425, "", Reason::RateLimited),
            (429, "", Reason::RateLimited),
            (500, "", Reason::Internal),
            (503, "", Reason::Unavailable),
        ] {
            assert_eq!(Error::http(status, None, body.as_bytes(), "").reason(), want, "{status} {body}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // of RFC 9110's example
        for (header, want) in [
            ("7", Some(7)),
            ("2000000000", Some(86_400)),
            ("99999999999999999999", None),
            ("0", None),
            ("-7", None),
            ("soon", None),
            ("", None),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", None),
        ] {
            assert_eq!(wait(header, now), want.map(Duration::from_secs), "{header}");
        }
    }
}
