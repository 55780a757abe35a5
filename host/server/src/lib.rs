//! The host's HTTP: health, metrics, REST, and the socket that the command line speaks to.
//!
//! Handlers translate; a [`weir_model::service::Service`] decides. One set of routes serves both listeners, and who may
//! use what is one value, [`Access`]:
//!
//! | route | answers | Owner | Token | Loopback |
//! |---|---|---|---|---|
//! | `GET /healthz` | `ok` while the process serves | yes | open | yes |
//! | `GET /readyz` | `Readiness`; 503 until it is ready | yes | open, without details | yes |
//! | `GET /metrics` | Prometheus text, see [`metrics`] | yes | yes | yes |
//! | `GET /api/v1/status` | `Status` | yes | yes | yes |
//! | `GET /api/v1/alarms?tenant=&scenario=&cleared=true` | [`api::Alarms`] | yes | yes | yes |
//! | `POST /api/v1/events` [`api::EventsAsk`] | `Events`, after at most `wait_ms` | yes | yes | yes |
//! | `GET /api/v1/scenarios/TENANT/SCENARIO/ledger?run=&after=&limit=` | [`api::Batches`] | yes | yes | yes |
//! | `GET /api/v1/scenarios/TENANT/SCENARIO/history` | [`api::History`] | yes | yes | yes |
//! | `POST /api/v1/query` [`api::QueryAsk`] | `Rows` | yes | yes | no |
//! | `POST /api/v1/scenarios/TENANT/SCENARIO/batch` [`api::SideAsk`] | `SideReport` | yes | yes | no |
//! | `POST /api/v1/scenarios/TENANT/SCENARIO/rollback` [`api::RollbackAsk`] | [`api::Pinned`] | yes | yes | no |
//! | `POST /api/v1/scenarios/TENANT/SCENARIO/{unpin,forget,resume,pause}` | [`api::Done`] | yes | yes | no |
//!
//! [`RemoteService`] is the other end: the same trait, answered over the socket. This crate alone knows the wire.
//!
//! Everything that is not an answer is `{"fault": {...}}` with a fitting status code, [`answer::status_of`].

pub mod answer;
pub mod api;
pub mod auth;
pub mod client;
mod connection;
mod lane;
pub mod listen;
pub mod metrics;
mod routes;

pub use auth::{Access, Token};
pub use client::RemoteService;
pub use listen::{Serving, bind_tcp, bind_unix};
pub use metrics::Scrape;
pub use routes::{Api, router};

#[cfg(test)]
mod tests;
