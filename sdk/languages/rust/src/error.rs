use std::{fmt, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::text::clean_text;

/// What an error means to the agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// Unclassified: the agent waits and tries again.
    Unknown,
    /// The request cannot be signed as it is, or a setting is wrong: the attempt ends.
    Invalid,
    /// The caller is not allowed this certificate: the attempt ends.
    Denied,
    /// The token was not accepted: the agent reads it again and tries once more.
    Unauthenticated,
    /// Too many requests, or an exhausted quota: the agent waits.
    RateLimited,
    /// The CA cannot be reached or is not ready: the agent waits.
    Unavailable,
    /// The CA has the request and has not decided on it yet, as while a person has to approve it.
    Pending,
    /// A conflict with another request: the agent waits.
    Aborted,
    /// The CA or this provider failed: the agent waits.
    Internal,
    /// No reply in time: the agent waits.
    Deadline,
    /// There are no settings: the agent sends them and calls again.
    NotConfigured,
    /// The ability is missing, which the agent remembers.
    Unimplemented,
}

impl Reason {
    fn on_the_wire(self) -> (Code, &'static str) {
        match self {
            Reason::Unknown => (Code::Unknown, "UNKNOWN"),
            Reason::Invalid => (Code::InvalidArgument, "INVALID"),
            Reason::Denied => (Code::PermissionDenied, "DENIED"),
            Reason::Unauthenticated => (Code::Unauthenticated, "UNAUTHENTICATED"),
            Reason::RateLimited => (Code::ResourceExhausted, "RATE_LIMITED"),
            Reason::Unavailable => (Code::Unavailable, "UNAVAILABLE"),
            Reason::Pending => (Code::Unavailable, "PENDING"),
            Reason::Aborted => (Code::Aborted, "ABORTED"),
            Reason::Internal => (Code::Internal, "INTERNAL"),
            Reason::Deadline => (Code::DeadlineExceeded, "DEADLINE"),
            Reason::NotConfigured => (Code::FailedPrecondition, "NOT_CONFIGURED"),
            Reason::Unimplemented => (Code::Unimplemented, "UNIMPLEMENTED"),
        }
    }
}

/// A failure with its reason. The operator reads the text: no keys, no tokens.
#[derive(Clone, Debug)]
pub struct Error {
    reason: Reason,
    text: String,
    pointer: String,
    retry_after: Option<Duration>,
}

impl Error {
    /// An error with any reason.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Error { reason, text: text.into(), pointer: String::new(), retry_after: None }
    }

    /// [`Reason::Invalid`].
    pub fn invalid(text: impl Into<String>) -> Self {
        Error::new(Reason::Invalid, text)
    }

    /// [`Reason::Denied`].
    pub fn denied(text: impl Into<String>) -> Self {
        Error::new(Reason::Denied, text)
    }

    /// [`Reason::Unauthenticated`].
    pub fn unauthenticated(text: impl Into<String>) -> Self {
        Error::new(Reason::Unauthenticated, text)
    }

    /// [`Reason::RateLimited`]; add what the CA said with [`Error::retry_after`].
    pub fn rate_limited(text: impl Into<String>) -> Self {
        Error::new(Reason::RateLimited, text)
    }

    /// [`Reason::Unavailable`].
    pub fn unavailable(text: impl Into<String>) -> Self {
        Error::new(Reason::Unavailable, text)
    }

    /// [`Reason::Pending`]. The agent repeats the request: after [`Error::retry_after`], else within
    /// 10 minutes.
    pub fn pending(text: impl Into<String>) -> Self {
        Error::new(Reason::Pending, text)
    }

    /// [`Reason::Aborted`].
    pub fn aborted(text: impl Into<String>) -> Self {
        Error::new(Reason::Aborted, text)
    }

    /// [`Reason::Internal`].
    pub fn internal(text: impl Into<String>) -> Self {
        Error::new(Reason::Internal, text)
    }

    /// Adds what the CA asked the agent to wait.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        Error { retry_after: Some(after), ..self }
    }

    /// Adds which setting is wrong, as a JSON Pointer (RFC 6901).
    #[must_use]
    pub fn at(self, pointer: impl Into<String>) -> Self {
        Error { pointer: pointer.into(), ..self }
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    pub(crate) fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns the status that is sent, without the token.
    pub(crate) fn status(&self, token: &str) -> Status {
        let (code, word) = self.reason.on_the_wire();
        let mut details = ErrorDetails::with_error_info(word, "countersign.dev", []);
        if let Some(after) = self.retry_after {
            details.set_retry_info(Some(after));
        }
        Status::with_error_details(code, clean_text(&self.text, &[token]), details)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
