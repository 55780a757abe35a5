//! A webhook: an HTTP POST for each message.

use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use weir_model::notify::{HeaderPart, HeaderText, Message, NotifyDef, web_url};
use weir_model::port::{Delivery, Notifier};
use weir_model::time::BoxFuture;
use weir_model::{Clock, Fault, FaultKind, Retry, Time};

use super::Environment;

/// The header by which a receiver knows a message that it has seen before.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// How long a receiver may ask us to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// How much of a refusal's text is told.
const TOLD_CHARS: usize = 200;
const CONNECT: Duration = Duration::from_secs(5);

/// The client of all webhooks. It follows no redirect, because a receiver must not choose where the host goes next, and uses
/// no proxy of the environment.
pub(super) fn client() -> Result<Client, Fault> {
    Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .pool_max_idle_per_host(1)
        .pool_idle_timeout(Duration::from_secs(30))
        .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| Fault::host(FaultKind::Sink, format_args!("no HTTP client can be made: {}", causes(&e))))
}

pub(super) struct Webhook {
    client: Client,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    pub fn new(
        client: Client,
        def: &NotifyDef,
        environment: &Environment,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let config = |field: &str, why: String| Fault::tenant(FaultKind::Config, why).field(field);
        let url = def.url.as_deref().ok_or_else(|| config("url", "a webhook needs one".to_owned()))?;
        let url = web_url(url).map_err(|why| config("url", why))?;
        let mut headers = HeaderMap::new();
        for (name, text) in &def.headers {
            let field = format!("headers.{name}");
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|e| config(&field, e.to_string()))?;
            let value = filled(text, environment).map_err(|fault| fault.field(&field))?;
            // The value is no part of the message: it may be a secret.
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| config(&field, "the value is no plain text on one line".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(Self { client, url, headers, timeout: def.timeout.get(), clock })
    }

    async fn post(&self, message: &Message) -> Delivery {
        let Ok(key) = HeaderValue::from_str(&message.id) else {
            return Delivery::Refused(Fault::internal("the identity of a message is no header"));
        };
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(IDEMPOTENCY_KEY, key)
            .timeout(self.timeout)
            .body(message.json());
        match request.send().await {
            Ok(response) => self.answered(response).await,
            // What is wrong with the request is wrong each time.
            Err(e) if e.is_builder() => Delivery::Refused(self.fault(&causes(&e)).retry(Retry::Never)),
            Err(e) => Delivery::Later { fault: self.fault(&causes(&e)), after: None },
        }
    }

    async fn answered(&self, response: Response) -> Delivery {
        let status = response.status();
        if status.is_success() {
            return Delivery::Done;
        }
        // A date is of the receiver's calendar.
        let after = response.headers().get(RETRY_AFTER).and_then(|v| wait(v, self.clock.outside()));
        let may_pass = status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        let mut text = format!("it answers {status}");
        if status.is_redirection() {
            text.push_str(", and redirects are not followed");
        }
        let said = said(response).await;
        if !said.is_empty() {
            text = format!("{text}: {said}");
        }
        let fault = self.fault(&text);
        if may_pass { Delivery::Later { fault, after } } else { Delivery::Refused(fault.retry(Retry::Never)) }
    }

    /// Names the receiver without what its URL may hold as a secret.
    fn fault(&self, what: &str) -> Fault {
        Fault::external(FaultKind::Sink, format_args!("webhook {}: {what}", self.url.origin().ascii_serialization()))
    }
}

impl Notifier for Webhook {
    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Delivery> {
        Box::pin(self.post(message))
    }
}

fn filled(text: &HeaderText, environment: &Environment) -> Result<String, Fault> {
    let parts = text.parts().map_err(|why| Fault::tenant(FaultKind::Config, why))?;
    let filled = parts.into_iter().map(|part| match part {
        HeaderPart::Text(text) => Ok(text.to_owned()),
        HeaderPart::Variable(name) => environment(name).ok_or_else(|| {
            Fault::host(FaultKind::Config, format_args!("the host's environment has no variable {name}"))
                .fix("set it and start the host again")
        }),
    });
    filled.collect()
}

/// `Retry-After`: seconds or a date. Never longer than [`LONGEST_WAIT`].
fn wait(value: &HeaderValue, now: Time) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => Time(DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros()).since(now),
    };
    Some(wait.min(LONGEST_WAIT))
}

/// The beginning of what a receiver says, on one line.
async fn said(mut response: Response) -> String {
    let first = response.chunk().await.ok().flatten().unwrap_or_default();
    let cut = &first[..first.len().min(4 * TOLD_CHARS)];
    let text = String::from_utf8_lossy(cut);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(TOLD_CHARS).collect::<String>().trim().to_owned()
}

/// An error with its causes; reqwest's own text has the URL in it, which may hold a secret.
fn causes(e: &reqwest::Error) -> String {
    let what = if e.is_timeout() {
        "no answer in time"
    } else if e.is_connect() {
        "no connection"
    } else {
        "the request failed"
    };
    let mut out = what.to_owned();
    let mut cause = std::error::Error::source(e);
    while let Some(one) = cause {
        let text = one.to_string();
        if !out.ends_with(&text) {
            out = format!("{out}: {text}");
        }
        cause = one.source();
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now: Time = "2026-11-30T12:00:00Z".parse().unwrap();
        let of = |text: &str| wait(&HeaderValue::from_str(text).unwrap(), now);
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("Mon, 30 Nov 2026 12:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(of("Mon, 30 Nov 2026 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("86400"), Some(LONGEST_WAIT));
        assert_eq!(of("soon"), None);
    }

    #[test]
    fn variables_are_filled_in_and_one_that_is_not_set_is_named() {
        let environment = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
        assert_eq!(filled(&HeaderText("Bearer ${TOKEN}".into()), &environment).unwrap(), "Bearer s3cret");
        let fault = filled(&HeaderText("${OTHER}".into()), &environment).unwrap_err();
        assert!(fault.message.contains("OTHER") && !fault.to_string().contains("s3cret"), "{fault}");
    }
}
