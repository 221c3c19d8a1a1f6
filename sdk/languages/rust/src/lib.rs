//! Write a [Countersign](https://github.com/countersign-dev/countersign) provider: implement
//! [`Authority`] for a type and call [`serve`] in `main`. The type of its settings is their JSON
//! Schema, their documentation and their check; an [`Error`] says what the agent does next.

mod authority;
#[cfg(feature = "chain")]
pub mod chain;
pub mod conformance;
mod error;
mod host;
mod http;
mod messages;
#[allow(dead_code, missing_docs, clippy::all, clippy::pedantic)] // dead: WitSvid, which has no method here
mod proto;
mod service;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
mod text;
mod values;

pub use authority::{Ability, Authority, NameMatch, SetSender};
pub use error::{Error, Reason};
pub use host::serve;
pub use messages::{Certificate, JwtRequest, RenewalWindow, SignRequest, Token, TokenRequest};
pub use schemars;
pub use serde;
pub use settings::Secret;
pub use text::clean_text;
pub use values::{File, Period, Url};
