//! How faults become HTTP.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use weir_model::fault::{Fault, FaultKind, Retry, Whose};

use crate::api::Refused;

/// The status code of a fault: who has to act decides it.
pub fn status_of(fault: &Fault) -> StatusCode {
    match (fault.kind, fault.whose, fault.retry) {
        (FaultKind::NotReplayable, ..) => StatusCode::GONE,
        (FaultKind::NotFound, ..) => StatusCode::NOT_FOUND,
        (_, Whose::Tenant, _) => StatusCode::UNPROCESSABLE_ENTITY,
        (_, Whose::External, _) => StatusCode::BAD_GATEWAY,
        (_, Whose::Host, Retry::Later) => StatusCode::SERVICE_UNAVAILABLE,
        (_, Whose::Host, Retry::Never) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    fault: Fault,
}

impl Refusal {
    /// The request itself is at fault, in a way that only HTTP knows.
    pub(crate) fn request(status: StatusCode, message: impl std::fmt::Display, fix: &'static str) -> Self {
        Self { status, fault: Fault::tenant(FaultKind::Config, message).fix(fix) }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { status: status_of(&fault), fault }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(Refused { fault: self.fault })).into_response()
    }
}
