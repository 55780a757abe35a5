//! A running host, seen through its socket: the same [`Service`] as inside it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use weir_model::alarm::AlarmState;
use weir_model::batch::BatchRecord;
use weir_model::fault::{Fault, FaultKind};
use weir_model::id::{BatchId, Digest, Name, RunKey, ScenarioId};
use weir_model::review::{Review, ReviewAsk};
use weir_model::service::{
    BackfillAsk, BackfillProgress, Events, HistoryEntry, Readiness, Rows, Service, SideReport, Status,
};
use weir_model::time::Time;

use crate::api::{
    Alarms, Batches, Done, EventsAsk, History, Pinned, QueryAsk, Refused, RollbackAsk, SOCKET, SideAsk, scenario_path,
};
use crate::listen::SocketPath;

/// Beyond the longest that a side run may take (compile, query, detect), and what a request waits for a free place.
const PATIENCE: Duration = Duration::from_secs(600);
/// What an answer may be large: a page of records, or the rows of a query.
const MAX_ANSWER_BYTES: usize = 1 << 28;

/// The host that holds a data folder. One connection a call, so that a host that was started again is simply found.
/// Calls block, and must not come from an async task.
#[derive(Debug)]
pub struct RemoteService {
    socket: PathBuf,
    runtime: Runtime,
}

/// Whether a fault says that the host went away (or is about to), so that asking again later makes sense.
pub fn is_gone(fault: &Fault) -> bool {
    fault.kind == FaultKind::Cancelled
}

impl RemoteService {
    /// The host that runs on a data folder; none when no host does, also when one was killed and left its socket.
    pub fn find(data: &Path) -> Result<Option<Self>, Fault> {
        let socket = data.join(SOCKET);
        let connected =
            SocketPath::new(&socket).and_then(|address| std::os::unix::net::UnixStream::connect(address.get()));
        match connected {
            Ok(_) => {}
            Err(e) if nobody(e.kind()) => return Ok(None),
            Err(e) => {
                return Err(Fault::host(
                    FaultKind::Ledger,
                    format_args!("a host may run here, but its socket cannot be opened: {e}"),
                )
                .file(socket.display())
                .fix("run this as the user that runs the host"));
            }
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Fault::internal(format_args!("a runtime for the socket: {e}")))?;
        Ok(Some(Self { socket, runtime }))
    }

    fn gone(&self, why: impl std::fmt::Display) -> Fault {
        Fault::host(FaultKind::Cancelled, format_args!("the host does not answer: {why}"))
            .file(self.socket.display())
            .fix("see whether it still runs, and try again")
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let (status, bytes) = self.exchange(Method::GET, path, Vec::new())?;
        read(status, &bytes)
    }

    fn post<T: DeserializeOwned>(&self, path: &str, ask: &impl Serialize) -> Result<T, Fault> {
        let ask = serde_json::to_vec(ask).map_err(|e| Fault::internal(format_args!("a request for {path}: {e}")))?;
        let (status, bytes) = self.exchange(Method::POST, path, ask)?;
        read(status, &bytes)
    }

    fn exchange(&self, method: Method, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), Fault> {
        let exchange = self.exchange_async(method, path, body);
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, exchange).await })
            .unwrap_or_else(|_| Err(self.gone(format_args!("no answer in {PATIENCE:?}"))))
    }

    async fn exchange_async(&self, method: Method, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), Fault> {
        let address = SocketPath::new(&self.socket).map_err(|e| self.gone(e))?;
        let stream = UnixStream::connect(address.get()).await.map_err(|e| self.gone(e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.gone(e))?;
        // Ends with the sender; what goes wrong in it is told by the request.
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "weir")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| Fault::internal(format_args!("a request for {path}: {e}")))?;
        let response = sender.send_request(request).await.map_err(|e| self.gone(e))?;
        let status = response.status();
        let bytes =
            Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.map_err(|e| self.gone(e))?.to_bytes();
        connection.abort();
        Ok((status, bytes))
    }
}

/// What connecting says when no process listens.
fn nobody(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory)
}

fn read<T: DeserializeOwned>(status: StatusCode, bytes: &[u8]) -> Result<T, Fault> {
    let strange = |e: &dyn std::fmt::Display| {
        Fault::internal(format_args!("the host's answer ({status}) cannot be read: {e}"))
            .fix("use the same version of weir on both sides")
    };
    if status.is_success() {
        return serde_json::from_slice(bytes).map_err(|e| strange(&e));
    }
    match serde_json::from_slice::<Refused>(bytes) {
        Ok(refused) => Err(refused.fault),
        Err(e) => Err(strange(&e)),
    }
}

impl Service for RemoteService {
    fn status(&self) -> Result<Status, Fault> {
        self.get("/api/v1/status")
    }
    fn ready(&self) -> Readiness {
        // Not ready is an answer too, whatever its status code.
        self.exchange(Method::GET, "/readyz", Vec::new())
            .and_then(|(status, bytes)| match serde_json::from_slice(&bytes) {
                Ok(readiness) => Ok(readiness),
                Err(_) => read(status, &bytes),
            })
            .unwrap_or_else(|fault| Readiness { ready: false, waiting: vec![fault.to_string()] })
    }
    fn alarms(&self, scenario: Option<&ScenarioId>, cleared: bool) -> Result<Vec<AlarmState>, Fault> {
        let of = scenario.map_or_else(String::new, |id| format!("&tenant={}&scenario={}", id.tenant, id.scenario));
        let found: Alarms = self.get(&format!("/api/v1/alarms?cleared={cleared}{of}"))?;
        Ok(found.alarms)
    }
    fn events(&self, after: &BTreeMap<String, BatchId>, limit: usize, wait_ms: u64) -> Result<Events, Fault> {
        let ask = EventsAsk { after: after.clone(), limit, wait_ms };
        self.post("/api/v1/events", &ask)
    }
    fn query(&self, tenant: &Name, sql: &str) -> Result<Rows, Fault> {
        let ask = QueryAsk { tenant: tenant.clone(), sql: sql.to_owned() };
        self.post("/api/v1/query", &ask)
    }
    fn ledger(&self, key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        let after = after.map_or_else(String::new, |id| format!("&after={}", id.0));
        let path = scenario_path(&key.scenario, "ledger");
        let found: Batches = self.get(&format!("{path}?run={}&limit={limit}{after}", key.run))?;
        Ok(found.batches)
    }
    fn newest(&self, key: &RunKey, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        let path = scenario_path(&key.scenario, "ledger");
        let found: Batches = self.get(&format!("{path}?run={}&limit={limit}&newest=true", key.run))?;
        Ok(found.batches)
    }
    fn side(&self, id: &ScenarioId, at: Time, latest: bool) -> Result<SideReport, Fault> {
        self.post(&scenario_path(id, "batch"), &SideAsk { at, latest })
    }
    fn review(&self, ask: &ReviewAsk) -> Result<Review, Fault> {
        self.post(&scenario_path(&ask.scenario, "review"), ask)
    }
    fn backfill(&self, ask: &BackfillAsk) -> Result<BackfillProgress, Fault> {
        self.post(&scenario_path(&ask.scenario, "backfill"), ask)
    }
    fn history(&self, id: &ScenarioId) -> Result<Vec<HistoryEntry>, Fault> {
        let found: History = self.get(&scenario_path(id, "history"))?;
        Ok(found.history)
    }
    fn rollback(&self, id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault> {
        let done: Pinned = self.post(&scenario_path(id, "rollback"), &RollbackAsk { to })?;
        Ok(done.pinned)
    }
    fn unpin(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.post(&scenario_path(id, "unpin"), &Done {}).map(|Done {}| ())
    }
    fn forget(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.post(&scenario_path(id, "forget"), &Done {}).map(|Done {}| ())
    }
    fn resume(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.post(&scenario_path(id, "resume"), &Done {}).map(|Done {}| ())
    }
    fn pause(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.post(&scenario_path(id, "pause"), &Done {}).map(|Done {}| ())
    }
}
