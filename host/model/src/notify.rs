//! Notification sinks: `[notify.NAME]` of a manifest, so that a person hears of an alarm.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use crate::alarm::{AlarmChange, AlarmEvent, Severity};
use crate::duration::Span;
use crate::id::{BatchId, Name};
use crate::time::Time;

/// What the name of a notification sink's output begins with: that of `[notify.oncall]` is `notify-oncall`.
pub const NOTIFY_OUTPUT: &str = "notify-";
/// The longest name of a notification sink, so that its output has a name too.
pub const NAME_BYTES: usize = 48;

/// Whom to tell of which changes, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifyDef {
    /// Webhook or file.
    #[serde(rename = "type")]
    pub kind: NotifyKind,
    /// Where a webhook posts to; it must begin with a prefix that tenant.toml grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Further headers of a webhook. `${NAME}` in a value stands for a variable of the host's environment that tenant.toml
    /// grants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderText>,
    /// Only alarms at least as bad. An alarm that was at least as bad once is followed to its end: what is compared of a
    /// change that makes it less bad is the highest severity since it was opened.
    #[serde(default = "least")]
    pub min_severity: Severity,
    /// Only these changes.
    #[serde(default = "default_changes")]
    pub changes: Vec<AlarmChange>,
    /// What to do with what cannot be delivered. Default: a webhook expires it, a file waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_full: Option<OnFull>,
    /// With `expire`: most notifications that wait. The oldest beyond are dead letters.
    #[serde(default = "default_rows")]
    pub backlog_rows: u64,
    /// With `expire`: what is older than this is a dead letter.
    #[serde(default = "default_age")]
    pub backlog_age: Span,
    /// How long one request of a webhook may take.
    #[serde(default = "default_timeout")]
    pub timeout: Span,
}

fn least() -> Severity {
    Severity::Info
}
fn default_changes() -> Vec<AlarmChange> {
    vec![AlarmChange::Opened, AlarmChange::Escalated, AlarmChange::Reopened, AlarmChange::Cleared]
}
fn default_rows() -> u64 {
    10_000
}
fn default_age() -> Span {
    Span::secs(3_600)
}
fn default_timeout() -> Span {
    Span::secs(10)
}

/// How somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyKind {
    /// An HTTP POST for each change.
    Webhook,
    /// A JSON line for each change, in a file of the data folder.
    File,
}

/// What becomes of notifications that cannot be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// They wait in the ledger for as long as it takes.
    Wait,
    /// Those beyond the bounds become dead letters.
    Expire,
}

impl NotifyDef {
    /// What to do with what cannot be delivered.
    pub fn on_full(&self) -> OnFull {
        self.on_full.unwrap_or(match self.kind {
            NotifyKind::Webhook => OnFull::Expire,
            NotifyKind::File => OnFull::Wait,
        })
    }

    /// Whether somebody wants to hear of a change.
    pub fn wants(&self, event: &AlarmEvent) -> bool {
        let alarm = &event.alarm;
        let worst = match event.change {
            AlarmChange::Opened | AlarmChange::Escalated | AlarmChange::Reopened => alarm.severity,
            AlarmChange::Lowered | AlarmChange::Cleared | AlarmChange::Stale | AlarmChange::Fresh => {
                alarm.severity.max(alarm.peak)
            }
        };
        self.changes.contains(&event.change) && worst >= self.min_severity
    }
}

/// A header's value. May be a secret, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HeaderText(pub String);

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A part of a header's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderPart<'a> {
    /// As it stands.
    Text(&'a str),
    /// A variable of the host's environment.
    Variable(&'a str),
}

impl HeaderText {
    /// Its parts. The error says what is wrong with it.
    pub fn parts(&self) -> Result<Vec<HeaderPart<'_>>, String> {
        let (mut out, mut rest) = (Vec::new(), self.0.as_str());
        while let Some((text, more)) = rest.split_once("${") {
            let (name, after) = more.split_once('}').ok_or("there is a '${' without its '}'")?;
            let good = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            if name.is_empty() || !name.chars().all(good) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(format!(
                    "'{}' is no name of a variable: write it in capitals, as in ${{HOOK_TOKEN}}",
                    cut(name)
                ));
            }
            out.extend([HeaderPart::Text(text), HeaderPart::Variable(name)]);
            rest = after;
        }
        out.push(HeaderPart::Text(rest));
        out.retain(|p| *p != HeaderPart::Text(""));
        Ok(out)
    }
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The output of a notification sink; none when the name is too long.
pub fn output_of(name: &Name) -> Option<Name> {
    Name::new(&format!("{NOTIFY_OUTPUT}{name}")).ok()
}

/// The notification sink of an output, if it is one's.
pub fn sink_of(output: &Name) -> Option<Name> {
    Name::new(output.as_str().strip_prefix(NOTIFY_OUTPUT)?).ok()
}

/// One change of an alarm on its way to somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The same each time it is sent, and no other's: who gets it twice can tell.
    pub id: String,
    /// T of the batch.
    pub time: Time,
    /// The batch.
    pub batch: BatchId,
    /// Which of the batch's changes of alarms it is, from 0.
    pub index: u32,
    /// The change, without `id`.
    pub body: Map<String, Value>,
}

impl Message {
    /// What is sent: the change with `id` as its first field.
    pub fn json(&self) -> String {
        let id = ("id".to_owned(), Value::from(self.id.as_str()));
        let all: Map<String, Value> = std::iter::once(id).chain(self.body.clone()).collect();
        Value::Object(all).to_string()
    }
}

/// Whether a webhook's URL is one that the prefixes grant: the same scheme, host and port, and a path that is the prefix's
/// or below it. The error says why not.
pub fn granted(url: &str, prefixes: &[String]) -> Result<(), String> {
    let target = web_url(url)?;
    let within = |prefix: &String| {
        web_url(prefix).is_ok_and(|prefix| {
            let path = prefix.path().strip_suffix('/').unwrap_or(prefix.path());
            let below = target.path().strip_prefix(path);
            prefix.origin() == target.origin() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    if prefixes.iter().any(within) {
        return Ok(());
    }
    Err(match prefixes {
        [] => "the tenant is granted no webhooks".to_owned(),
        some => format!("the tenant is granted only what begins with {}", some.join(" or ")),
    })
}

/// A URL of the web. The error says what it lacks.
pub fn web_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("it is no URL: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it is no http or https URL".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user or password in it would be shown; send them in a header".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn event(change: AlarmChange, severity: Severity, peak: Severity) -> AlarmEvent {
        let mut event: AlarmEvent = serde_json::from_value(serde_json::json!({
            "change": "opened", "before": null, "time": "2026-11-30T12:01:00Z", "batch": 7, "because": [],
            "ruleset": crate::Digest([0; 32]),
            "alarm": {
                "scenario": "acme/s1", "name": "errors", "key_names": ["router"], "key": ["r1"], "status": "open",
                "severity": "info", "message": "", "fields": [], "opened_at": "2026-11-30T12:00:00Z",
                "last_seen": "2026-11-30T12:01:00Z", "count": 2, "quiet": 0, "ruleset": crate::Digest([0; 32]), "batch": 7,
            },
        }))
        .unwrap();
        event.change = change;
        (event.alarm.severity, event.alarm.peak) = (severity, peak);
        event
    }

    #[test]
    fn who_heard_that_it_was_bad_hears_that_it_is_over() {
        use AlarmChange::{Cleared, Escalated, Lowered, Opened, Reopened, Stale};
        use Severity::{Critical, Major, Warning};
        let def: NotifyDef = toml::from_str(
            "type = 'file'\nmin_severity = 'major'\nchanges = ['opened', 'escalated', 'lowered', 'cleared']",
        )
        .unwrap();
        for (change, severity, peak, wanted) in [
            (Opened, Warning, Warning, false),
            (Opened, Major, Major, true),
            (Escalated, Critical, Critical, true),
            (Escalated, Warning, Warning, false),
            (Lowered, Warning, Critical, true),
            (Cleared, Warning, Critical, true),
            (Cleared, Warning, Warning, false),
            (Reopened, Critical, Critical, false),
            (Stale, Critical, Critical, false),
        ] {
            assert_eq!(def.wants(&event(change, severity, peak)), wanted, "{change} {severity} {peak}");
        }
    }

    #[test]
    fn a_header_is_text_and_variables_and_never_shown() {
        let text = HeaderText("Bearer ${HOOK_TOKEN}!".into());
        let parts = [HeaderPart::Text("Bearer "), HeaderPart::Variable("HOOK_TOKEN"), HeaderPart::Text("!")];
        assert_eq!(text.parts().unwrap(), parts);
        assert_eq!(format!("{text:?}"), "***");
        assert_eq!(HeaderText("plain $x".into()).parts().unwrap(), [HeaderPart::Text("plain $x")]);
        for bad in ["${", "${a}", "${}", "${1A}", "${A B}"] {
            assert!(HeaderText(bad.into()).parts().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_has_its_id_first() {
        let body = serde_json::from_str(r#"{"a":1,"B":[0.1]}"#).unwrap();
        let message = Message { id: "l/s#\"x\"".into(), time: Time::EPOCH, batch: BatchId(1), index: 0, body };
        assert_eq!(message.json(), r#"{"id":"l/s#\"x\"","a":1,"B":[0.1]}"#);
    }

    #[test]
    fn a_webhook_goes_only_where_a_prefix_leads() {
        let prefixes = ["https://hooks.example.com/team".to_owned(), "http://127.0.0.1:8080/".to_owned()];
        for good in [
            "https://hooks.example.com/team",
            "https://hooks.example.com/team/",
            "https://HOOKS.example.com:443/team/a?x=1",
            "http://127.0.0.1:8080/any/where",
        ] {
            assert_eq!(granted(good, &prefixes), Ok(()), "{good}");
        }
        for bad in [
            "http://hooks.example.com/team",
            "https://hooks.example.com/teams",
            "https://hooks.example.com/team/../admin",
            "https://hooks.example.com/team/%2e%2e/admin",
            "https://hooks.example.com:8443/team",
            "https://hooks.example.com.evil.com/team",
            "https://hooks.example.com@evil.com/team",
            "https://evil.com/https://hooks.example.com/team",
            "http://127.0.0.1:80/",
            "file:///etc/passwd",
            "hooks.example.com/team",
        ] {
            assert!(granted(bad, &prefixes).is_err(), "{bad}");
        }
        assert!(granted("https://hooks.example.com/team", &[]).is_err());
    }
}
