//! What can be said about `[notify.NAME]` and the grants it needs. Pure.

use std::time::Duration;

use weir_model::notify::{HeaderPart, HeaderText, NAME_BYTES, NotifyDef, NotifyKind, granted, web_url};
use weir_model::ruleset::{Grants, Manifest, TenantConfig};
use weir_model::{Name, Problem};

use crate::near::nearest;

/// Most notification sinks of a scenario.
const MOST: usize = 8;
/// What a request may take.
const TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// Most notifications that may wait.
const MOST_ROWS: u64 = 100_000;
/// Headers that the host sets itself.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const MANIFEST: &str = "scenario.toml";

/// Checks the grants of `tenant.toml`.
pub(crate) fn grants(file: &str, grants: &Grants) -> Vec<Problem> {
    let mut out = Vec::new();
    for prefix in &grants.webhooks {
        if let Err(why) = web_url(prefix) {
            out.push(
                Problem::new(file, format_args!("'{prefix}': {why}"))
                    .field("grants.webhooks")
                    .fix("write the beginning of a URL with scheme and host, such as \"https://hooks.example.com/\""),
            );
        }
    }
    for name in &grants.env {
        let good = HeaderText(format!("${{{name}}}")).parts().is_ok_and(|p| p == [HeaderPart::Variable(name)]);
        if !good {
            out.push(
                Problem::new(file, format_args!("'{name}' is no name of a variable"))
                    .field("grants.env")
                    .fix("write it in capitals, as in \"HOOK_TOKEN\""),
            );
        }
    }
    out
}

/// Checks the notification sinks of a manifest.
pub(crate) fn sinks(m: &Manifest, tenant: &TenantConfig) -> Vec<Problem> {
    let mut out = Vec::new();
    if m.notify.len() > MOST {
        out.push(
            Problem::new(
                MANIFEST,
                format_args!("there are {} of them, and at most {MOST} are allowed", m.notify.len()),
            )
            .field("notify")
            .fix("tell one receiver, and have it tell the others"),
        );
    }
    for (name, def) in &m.notify {
        out.extend(one(name, def, &tenant.grants));
    }
    out
}

fn one(name: &Name, def: &NotifyDef, grants: &Grants) -> Vec<Problem> {
    let mut out = Vec::new();
    let mut say = |field: &str, message: String, fix: &str| {
        let field = if field.is_empty() { format!("notify.{name}") } else { format!("notify.{name}.{field}") };
        out.push(Problem::new(MANIFEST, message).field(field).fix(fix));
    };
    if name.as_str().len() > NAME_BYTES {
        say("", format!("the name is longer than {NAME_BYTES} characters"), "choose a shorter one");
    }
    if def.changes.is_empty() {
        say("changes", "nobody would hear of anything".into(), "list changes, such as [\"opened\", \"cleared\"]");
    }
    if !TIMEOUT.contains(&def.timeout.get()) {
        say("timeout", format!("{} is not between 100ms and 60s", def.timeout), "write a time such as \"10s\"");
    }
    if !(1..=MOST_ROWS).contains(&def.backlog_rows) {
        say("backlog_rows", format!("{} is not between 1 and {MOST_ROWS}", def.backlog_rows), "keep some, not all");
    }
    if def.backlog_age.get() < Duration::from_secs(1) {
        say("backlog_age", format!("{} is too short", def.backlog_age), "write a time such as \"1h\"");
    }
    match (def.kind, &def.url) {
        (NotifyKind::Webhook, None) => say("url", "a webhook needs one".into(), "write url = \"https://...\""),
        (NotifyKind::Webhook, Some(url)) => {
            if let Err(why) = granted(url, &grants.webhooks) {
                say(
                    "url",
                    why,
                    "have an operator add the beginning of the URL to webhooks under [grants] in tenant.toml",
                );
            }
        }
        (NotifyKind::File, Some(_)) => {
            say("url", "a file has none".into(), "remove it; the file lies in the host's data folder");
        }
        (NotifyKind::File, None) => {}
    }
    if def.kind == NotifyKind::File && !def.headers.is_empty() {
        say("headers", "a file has none".into(), "remove them");
    }
    for (header, text) in &def.headers {
        let field = format!("headers.{header}");
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if header.is_empty() || header.len() > 128 || !header.chars().all(token) {
            say("headers", format!("'{}' is no header's name", header.escape_debug()), "use letters, digits and '-'");
        } else if OWN_HEADERS.contains(&header.to_ascii_lowercase().as_str()) {
            say(&field, "the host sets it itself".into(), "remove it");
        }
        if text.0.len() > 4_096 || text.0.chars().any(|c| c.is_ascii_control() || !c.is_ascii()) {
            say(&field, "the value is no plain text".into(), "use up to 4096 printable ASCII characters");
        }
        match text.parts() {
            Err(why) => say(&field, why, "write ${NAME} for a variable"),
            Ok(parts) => {
                for part in parts {
                    let HeaderPart::Variable(variable) = part else { continue };
                    if !grants.env.iter().any(|g| g == variable) {
                        let near = nearest(variable, grants.env.iter().map(String::as_str));
                        let fix = near.map_or_else(
                            || "have an operator add it to env under [grants] in tenant.toml".to_owned(),
                            |near| format!("did you mean {near}?"),
                        );
                        say(&field, format!("the variable {variable} is not granted"), &fix);
                    }
                }
            }
        }
    }
    out
}
