//! Who may ask what. Decided from plain values, before any handler runs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, StatusCode, header};
use weir_model::fault::{Fault, FaultKind};
use weir_model::id::Digest;

use crate::answer::Refusal;

/// A secret that opens a listener. Only its digest is kept, so nothing can print it.
#[derive(Clone)]
pub struct Token(Digest);

impl Token {
    /// The shortest that is taken.
    pub const MIN_CHARS: usize = 16;

    /// Takes a token. The error says which rule it breaks, never the token.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        if text.len() < Self::MIN_CHARS {
            return Err("it is shorter than 16 characters");
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("only visible ASCII characters can stand in an HTTP header");
        }
        Ok(Self(Digest::of(text.as_bytes())))
    }

    /// Compares in a time that tells nothing of where the two differ.
    fn is(&self, text: &str) -> bool {
        let other = Digest::of(text.as_bytes());
        let differing = std::iter::zip(self.0.0, other.0).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// What a listener's callers may do.
#[derive(Debug, Clone)]
pub enum Access {
    /// The socket in the data folder: whoever may open it owns the host.
    Owner,
    /// Everything, to those who send `Authorization: Bearer TOKEN`; health without details to everybody.
    Token(Token),
    /// A loopback address without a token: anybody on this machine may look, nobody may change or cost anything. A page
    /// in a browser on this machine is somebody else: its `Host` header gives it away.
    Loopback,
}

impl Access {
    /// What an address may offer. Any address but loopback needs a token.
    pub fn of(listen: SocketAddr, token: Option<Token>) -> Result<Self, Fault> {
        match token {
            Some(token) => Ok(Self::Token(token)),
            None if listen.ip().is_loopback() => Ok(Self::Loopback),
            None => Err(Fault::tenant(
                FaultKind::Config,
                format_args!("{listen} can be reached from other machines, and there is no token"),
            )
            .field("listen")
            .fix("listen on 127.0.0.1, or set listen_token = { env = \"NAME\" } or { file = \"PATH\" }")),
        }
    }

    /// Whether queries, side runs and changes are offered at all.
    pub(crate) fn may_act(&self) -> bool {
        !matches!(self, Self::Loopback)
    }

    /// Whether this request may go on, and as whom.
    pub(crate) fn admit(&self, path: &str, headers: &HeaderMap) -> Result<Caller, Refusal> {
        match self {
            Self::Owner => Ok(Caller::Known),
            Self::Token(token) => match bearer(headers) {
                Some(text) if token.is(text) => Ok(Caller::Known),
                _ if matches!(path, "/healthz" | "/readyz") => Ok(Caller::Unknown),
                _ => Err(Refusal::request(
                    StatusCode::UNAUTHORIZED,
                    "the token is missing or wrong",
                    "send the header 'Authorization: Bearer TOKEN'",
                )),
            },
            Self::Loopback if host_is_loopback(headers) => Ok(Caller::Known),
            Self::Loopback => Err(Refusal::request(
                StatusCode::MISDIRECTED_REQUEST,
                "the Host header is not a loopback name",
                "ask for http://127.0.0.1 or http://localhost",
            )),
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// One who may see details.
    Known,
    /// A prober without a token.
    Unknown,
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Whether the `Host` header names this machine by an address or name that only this machine resolves. A name that
/// somebody else's DNS points at 127.0.0.1 does not.
fn host_is_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
