//! Secrets are named in the configuration, never written into it.

use std::fmt;
use std::path::PathBuf;

use weir_server::Token;

/// Where a secret is.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// `{ env = "NAME" }`: an environment variable.
    Env(String),
    /// `{ file = "PATH" }`: a file; white space at its end does not count.
    File(PathBuf),
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the environment variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

impl SecretRef {
    /// Reads it as a token. The error is what is wrong and what to do, and holds nothing of the secret.
    pub fn token(&self) -> Result<Token, (String, String)> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|e| match e {
                std::env::VarError::NotPresent => "is not set".to_owned(),
                std::env::VarError::NotUnicode(_) => "is not text".to_owned(),
            }),
            Self::File(path) => std::fs::read_to_string(path).map_err(|e| format!("cannot be read: {e}")),
        };
        text.and_then(|text| Token::new(text.trim_end()).map_err(|why| format!("holds no usable token: {why}")))
            .map_err(|why| {
                let fix = match self {
                    Self::Env(name) => format!("set {name} for the process that runs the host"),
                    Self::File(_) => "write the token into that file, readable for the host".to_owned(),
                };
                (format!("{self} {why}"), fix)
            })
    }
}
