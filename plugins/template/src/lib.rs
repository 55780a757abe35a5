//! A detector to copy: which routers see many log-ins in a minute.
//!
//! `describe` says what it may ask for, `prepare` reads its configuration, `detect` judges one batch. What is counted is
//! SQL, how much is too much is a rule: both can be changed while it runs, without building this again.

use serde::Deserialize;
use weir_sdk::{Alarm, Batch, Description, Detector, Fault, Kind::*, MINUTE, Severity, Verdict, config};

/// The detector, which is its configuration: the table `[config]` of `scenario.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logins {
    /// How many minutes a batch waits for rows that come late.
    #[serde(default = "one")]
    wait_minutes: u32,
}

fn one() -> u32 {
    1
}

weir_sdk::export!(Logins);

impl Detector for Logins {
    fn describe() -> Description {
        Description::new("template", env!("CARGO_PKG_VERSION"))
            .query("logins")
            .rule("limit")
            .output("login_counts", |o| o.column("minute", Timestamp).column("router", Text).column("logins", Int64))
            .alarm("many_logins", ["router"])
    }

    fn prepare(json: &str) -> Result<Self, Fault> {
        config(json)
    }

    fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
        // T of the batch is the only clock: a replay of this batch must come out the same.
        let to = b.time().floor_minute() - self.wait_minutes * MINUTE;
        let counts = b.query("logins").bind("from", to - MINUTE).bind("to", to).run()?;
        let verdicts = b
            .rule("limit")
            .each(&b.select(&counts, &["logins"])?)
            .want("alarm", Boolean)
            .want("severity", Text)
            .run()?;
        b.reject_failed(&counts, &verdicts)?;

        b.output("login_counts")
            .fill([("minute", to - MINUTE)], counts.rows())?
            .copy("router", &counts, "router")?
            .copy("logins", &counts, "logins")?
            .finish()?;

        let (routers, logins) = (counts.texts("router")?, counts.int64s("logins")?);
        let (alarm, severities) = (verdicts.booleans("alarm")?, verdicts.texts("severity")?);
        let bad = (0..counts.rows()).filter(|row| alarm.get(*row) == Some(true));
        b.alarms(bad.map(|row| {
            let severity = severities.get(row).and_then(|s| s.parse().ok()).unwrap_or(Severity::Warning);
            Alarm::raise("many_logins", [&routers[row]], severity)
                .message(format!("{}: {} log-ins in {}", &routers[row], logins[row], to - MINUTE))
                .field("logins", logins[row])
                .because(counts.row(row))
        }))?;
        Ok(if verdicts.failed().is_empty() { Verdict::Judged } else { Verdict::NoVerdict })
    }
}
