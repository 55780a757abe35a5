//! `weir generate`: history for an example.

use std::sync::Arc;

use serde_json::json;
use weir_model::time::Clock;

use super::ask::instant;
use crate::cli::Generate;
use crate::config::Config;
use crate::exit::Failure;
use crate::generate::{self, Ask};
use crate::print::{Align, Out, Table, progress::Progress};

pub(super) fn generate(
    config: &Config,
    ask: &Generate,
    clock: Arc<dyn Clock>,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let (from, to) = weir_generate::minutes(instant("--from", ask.from, out)?, instant("--to", ask.to, out)?)?;
    let what = Ask { from, to, seed: ask.seed, tenant: ask.tenant.clone() };
    if config.data.is_none() && ask.out.is_none() {
        return Err(Failure::Usage("say where it goes: --data DIR (with --store DIR), --out DIR, or both".to_owned()));
    }
    let total = generate::minutes(&what) * weir_generate::Stream::ALL.len() as u64;
    let mut made = Vec::new();
    if let Some(folder) = &ask.out {
        let formats = ask.format.iter().copied().collect();
        let mut progress = Progress::new("files", "minutes", out);
        made = generate::into_files(&what, folder, &formats, &mut |n| drop(progress.at(n, total, out)))?;
        progress.end(out)?;
    }
    if config.data.is_some() {
        let now = clock.now();
        let mut progress = Progress::new("tables", "minutes", out);
        made = generate::into_data(&what, config, clock, &mut |n| drop(progress.at(n, total, out)))?;
        progress.end(out)?;
        let days = now.since(from).as_secs() / 86_400;
        if days >= 1 {
            out.note(format_args!(
                "rows of {days} days ago stay only as long as keep_days of their streams says once a host runs"
            ))?;
        }
    }
    if out.json {
        out.object(&json!({"from": from, "to": to, "seed": ask.seed, "streams": made}))?;
        return Ok(());
    }
    let mut table = Table::new([("stream", Align::Left), ("rows", Align::Right), ("", Align::Left)]);
    for stream in made {
        table.row([stream.stream, stream.rows.to_string(), stream.left_out.unwrap_or_default()]);
    }
    out.table(&table)?;
    Ok(())
}
