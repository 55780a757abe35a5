//! The routes. Handlers translate, the service decides.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use weir_model::fault::{Fault, FaultKind};
use weir_model::id::{RunKey, ScenarioId};
use weir_model::review::{Review, ReviewAsk};
use weir_model::service::{BackfillAsk, BackfillProgress, Events, Rows, Service, SideReport, Status};

use crate::answer::Refusal;
use crate::api::{
    Alarms, AlarmsAsk, Batches, Done, EventsAsk, History, LedgerAsk, MAX_PAGE, MAX_REQUEST_BYTES, MAX_WAIT_MS, Pinned,
    QueryAsk, RollbackAsk, SideAsk,
};
use crate::auth::{Access, Caller};
use crate::connection::{BODY, Timely};
use crate::lane::Lane;
use crate::metrics::{self, Scrape};

/// What all listeners of a host share. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    service: Arc<dyn Service>,
    scrape: Scrape,
    /// What reads and is quick.
    glance: Lane,
    /// What waits for events.
    follow: Lane,
    /// What computes or changes.
    work: Lane,
    /// Slices of long work, which leave places to the others.
    long: Lane,
}

impl Api {
    /// For a service, and the text of the metrics that were recorded.
    pub fn new(service: Arc<dyn Service>, scrape: Scrape) -> Self {
        Self {
            service,
            scrape,
            glance: Lane::new("status", 8),
            follow: Lane::new("events", 64),
            work: Lane::new("work", 4),
            long: Lane::new("backfill", std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

/// The routes of one listener.
pub fn router(api: &Api, access: Access) -> Router {
    let reads = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .route("/api/v1/status", get(status))
        .route("/api/v1/alarms", get(alarms))
        .route("/api/v1/events", post(events))
        .route(&of_scenario("ledger"), get(ledger))
        .route(&of_scenario("history"), get(history));
    let mut acts = Router::new()
        .route("/api/v1/query", post(query))
        .route(&of_scenario("batch"), post(side))
        .route(&of_scenario("review"), post(review))
        .route(&of_scenario("backfill"), post(backfill))
        .route(&of_scenario("rollback"), post(rollback))
        .route(&of_scenario("unpin"), post(unpin))
        .route(&of_scenario("forget"), post(forget))
        .route(&of_scenario("resume"), post(resume))
        .route(&of_scenario("pause"), post(pause));
    if !access.may_act() {
        acts = acts.layer(middleware::from_fn(|_: Request, _: Next| refuse()));
    }
    reads
        .merge(acts)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(Arc::new(access), guard))
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .with_state(api.clone())
}

fn of_scenario(what: &str) -> String {
    format!("/api/v1/scenarios/{{tenant}}/{{scenario}}/{what}")
}

async fn guard(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    match access.admit(request.uri().path(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request.map(|body| Timely::body(body, BODY))).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn refuse() -> Refusal {
    Refusal::request(
        StatusCode::FORBIDDEN,
        "this is not offered on a listener without a token",
        "use the weir command on this machine, or set listen_token",
    )
}
async fn no_route() -> Refusal {
    Refusal::request(StatusCode::NOT_FOUND, "there is no such resource", "see the documentation of the REST interface")
}
async fn no_method() -> Refusal {
    Refusal::request(
        StatusCode::METHOD_NOT_ALLOWED,
        "the resource does not take this method",
        "use GET to look, POST to ask or change",
    )
}

type Answer<T> = Result<Json<T>, Refusal>;
type Body<T> = Result<Json<T>, JsonRejection>;
type Asked<T> = Result<Query<T>, QueryRejection>;
type Whose = Result<Path<(String, String)>, PathRejection>;

fn malformed(status: StatusCode, why: impl std::fmt::Display) -> Refusal {
    Refusal::request(status, why, "correct the request")
}
fn body<T>(body: Body<T>) -> Result<T, Refusal> {
    body.map(|Json(ask)| ask).map_err(|e| malformed(e.status(), e.body_text()))
}
fn asked<T>(query: Asked<T>) -> Result<T, Refusal> {
    query.map(|Query(ask)| ask).map_err(|e| malformed(e.status(), e.body_text()))
}
fn scenario(path: Whose) -> Result<ScenarioId, Refusal> {
    let Path((tenant, name)) = path.map_err(|e| malformed(e.status(), e.body_text()))?;
    format!("{tenant}/{name}").parse().map_err(|e| malformed(StatusCode::BAD_REQUEST, e))
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Response {
    let readiness = api.glance.run(&api.service, |s| Ok(s.ready())).await;
    match readiness {
        Ok(readiness) => {
            let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            match caller {
                Caller::Known => (status, Json(readiness)).into_response(),
                Caller::Unknown => status.into_response(),
            }
        }
        Err(fault) => Refusal::from(fault).into_response(),
    }
}

/// Never fails because the service does: a scrape that is missing hides what was recorded.
async fn scrape(State(api): State<Api>) -> Response {
    let status = api.glance.run(&api.service, |s| s.status()).await;
    let text = metrics::text((api.scrape)(), &status);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn status(State(api): State<Api>) -> Answer<Status> {
    Ok(Json(api.glance.run(&api.service, |s| s.status()).await?))
}

async fn alarms(State(api): State<Api>, ask: Asked<AlarmsAsk>) -> Answer<Alarms> {
    let ask = asked(ask)?;
    let alarms = api.glance.run(&api.service, move |s| find(s, &ask)).await?;
    Ok(Json(Alarms { alarms }))
}

fn find(service: &dyn Service, ask: &AlarmsAsk) -> Result<Vec<weir_model::alarm::AlarmState>, Fault> {
    if let (Some(tenant), Some(scenario)) = (&ask.tenant, &ask.scenario) {
        let id = ScenarioId::new(tenant.clone(), scenario.clone());
        return service.alarms(Some(&id), ask.cleared);
    }
    let mut alarms = service.alarms(None, ask.cleared)?;
    alarms.retain(|a| {
        ask.tenant.as_ref().is_none_or(|t| *t == a.scenario.tenant)
            && ask.scenario.as_ref().is_none_or(|s| *s == a.scenario.scenario)
    });
    Ok(alarms)
}

async fn events(State(api): State<Api>, ask: Body<EventsAsk>) -> Answer<Events> {
    let ask = body(ask)?;
    let (limit, wait_ms) = (ask.limit.clamp(1, MAX_PAGE), ask.wait_ms.min(MAX_WAIT_MS));
    // What need not wait takes no follower's place.
    let lane = if wait_ms == 0 { &api.glance } else { &api.follow };
    Ok(Json(lane.run(&api.service, move |s| s.events(&ask.after, limit, wait_ms)).await?))
}

async fn ledger(State(api): State<Api>, id: Whose, ask: Asked<LedgerAsk>) -> Answer<Batches> {
    let (scenario, ask) = (scenario(id)?, asked(ask)?);
    let limit = ask.limit.clamp(1, MAX_PAGE);
    let key = RunKey { scenario, run: ask.run };
    if ask.newest && ask.after.is_some() {
        return Err(malformed(StatusCode::BAD_REQUEST, "newest and after exclude each other"));
    }
    let batches = api.glance.run(&api.service, move |s| match ask.newest {
        true => s.newest(&key, limit),
        false => s.ledger(&key, ask.after, limit),
    });
    let batches = batches.await?;
    Ok(Json(Batches { batches }))
}

async fn history(State(api): State<Api>, id: Whose) -> Answer<History> {
    let id = scenario(id)?;
    let history = api.glance.run(&api.service, move |s| s.history(&id)).await?;
    Ok(Json(History { history }))
}

async fn query(State(api): State<Api>, ask: Body<QueryAsk>) -> Answer<Rows> {
    let ask = body(ask)?;
    Ok(Json(api.work.run(&api.service, move |s| s.query(&ask.tenant, &ask.sql)).await?))
}

async fn side(State(api): State<Api>, id: Whose, ask: Body<SideAsk>) -> Answer<SideReport> {
    let (id, ask) = (scenario(id)?, body(ask)?);
    Ok(Json(api.work.run(&api.service, move |s| s.side(&id, ask.at, ask.latest)).await?))
}

async fn review(State(api): State<Api>, id: Whose, ask: Body<ReviewAsk>) -> Answer<Review> {
    let (id, ask) = (scenario(id)?, body(ask)?);
    same(&id, &ask.scenario)?;
    Ok(Json(api.work.run(&api.service, move |s| s.review(&ask)).await?))
}

/// The path and the request name a scenario: the same one.
fn same(path: &ScenarioId, asked: &ScenarioId) -> Result<(), Fault> {
    if path == asked {
        return Ok(());
    }
    Err(Fault::tenant(FaultKind::Config, format_args!("the path names {path}, the request {asked}"))
        .field("scenario")
        .fix("name the same scenario in both"))
}

async fn backfill(State(api): State<Api>, id: Whose, ask: Body<BackfillAsk>) -> Answer<BackfillProgress> {
    let (id, ask) = (scenario(id)?, body(ask)?);
    same(&id, &ask.scenario)?;
    Ok(Json(api.long.run(&api.service, move |s| s.backfill(&ask)).await?))
}

async fn rollback(State(api): State<Api>, id: Whose, ask: Body<RollbackAsk>) -> Answer<Pinned> {
    let (id, ask) = (scenario(id)?, body(ask)?);
    let pinned = api.work.run(&api.service, move |s| s.rollback(&id, ask.to)).await?;
    Ok(Json(Pinned { pinned }))
}

async fn unpin(State(api): State<Api>, id: Whose) -> Answer<Done> {
    act(&api, id, |s, id| s.unpin(id)).await
}
async fn forget(State(api): State<Api>, id: Whose) -> Answer<Done> {
    act(&api, id, |s, id| s.forget(id)).await
}
async fn resume(State(api): State<Api>, id: Whose) -> Answer<Done> {
    act(&api, id, |s, id| s.resume(id)).await
}
async fn pause(State(api): State<Api>, id: Whose) -> Answer<Done> {
    act(&api, id, |s, id| s.pause(id)).await
}
async fn act(api: &Api, id: Whose, does: fn(&dyn Service, &ScenarioId) -> Result<(), Fault>) -> Answer<Done> {
    let id = scenario(id)?;
    api.work.run(&api.service, move |s| does(s, &id)).await?;
    Ok(Json(Done {}))
}
