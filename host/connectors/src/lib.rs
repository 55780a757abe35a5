//! Sources: where the rows of streams come from, and how bytes become rows. And notification sinks: who is told of alarms.
//!
//! `generate` makes rows by SQL, one query a tick; `files` reads the files of a folder, each once. Both can be read again
//! from any position that has not been released.

pub mod decode;
pub mod files;
pub mod generate;
pub mod notify;

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use weir_model::port::{Journal, OpenSource, RowMaker, Sources};
use weir_model::stream::{SourceDef, StreamDef, StreamMeta};
use weir_model::{Fault, FaultKind, FaultPoints, Offsets, Problem, StreamId};

/// Plans the SQL of a `generate` source: SQL, schema of its rows, and the file that it stands in.
pub type MakeRows = dyn Fn(&str, SchemaRef, &str) -> Result<Arc<dyn RowMaker>, Problem> + Send + Sync;

/// Opens sources.
pub struct Connectors {
    spool: PathBuf,
    store: PathBuf,
    make_rows: Arc<MakeRows>,
    faults: Arc<dyn FaultPoints>,
}

impl Connectors {
    /// `spool`: folder of this host's own, for what may vanish at the source. `store`: the rule store; a relative path of
    /// a `files` source is taken from its tenant's folder there.
    pub fn new(spool: PathBuf, store: PathBuf, make_rows: Arc<MakeRows>, faults: Arc<dyn FaultPoints>) -> Arc<Self> {
        Arc::new(Self { spool, store, make_rows, faults })
    }
}

impl Sources for Connectors {
    fn open(
        &self,
        id: &StreamId,
        def: &StreamDef,
        meta: &StreamMeta,
        from: &Offsets,
        journal: Arc<dyn Journal>,
    ) -> Result<OpenSource, Fault> {
        let decode = Box::new(decode::Decoder::new(def));
        match &def.source {
            SourceDef::Generate { sql, interval, rate, .. } => {
                let file = format!("{}/streams/{}.toml", id.tenant, id.stream);
                let maker = (self.make_rows)(sql, def.schema(), &file).map_err(fault_of)?;
                let every = generate::every(*interval, *rate).map_err(|e| e.file(file))?;
                Ok((Box::new(generate::Generate::new(maker, def.schema(), meta.anchor, every, from)), decode))
            }
            SourceDef::Files { path, format, include, settle, delimiter } => {
                let folder = inside(&self.store.join(id.tenant.as_str()), path)
                    .map_err(|e| e.file(format_args!("{}/streams/{}.toml", id.tenant, id.stream)))?;
                let config = files::FilesConfig {
                    folder,
                    include: include.clone(),
                    settle: settle.get(),
                    spool: self.spool.join(id.tenant.as_str()).join(id.stream.as_str()),
                    format: files::Format {
                        format: *format,
                        delimiter: delimiter.and_then(|c| u8::try_from(c).ok()).unwrap_or(b','),
                    },
                };
                Ok((Box::new(files::Files::open(config, from, journal, self.faults.clone())?), decode))
            }
        }
    }
}

/// A tenant's folder below its own in the rule store. Whoever writes a stream's file must not read what the host can read.
fn inside(tenant: &Path, path: &str) -> Result<PathBuf, Fault> {
    let refuse = |what: &str| {
        Fault::tenant(FaultKind::Config, format_args!("the folder '{path}' {what}"))
            .field("source.path")
            .fix("write a folder below the tenant's own in the rule store, and have an operator mount there what is elsewhere")
    };
    let plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !plain {
        return Err(refuse("is not below the tenant's"));
    }
    let folder = tenant.join(path);
    match (folder.canonicalize(), tenant.canonicalize()) {
        (Ok(real), Ok(tenant)) if !real.starts_with(&tenant) => Err(refuse("is a link that leads out of the tenant's")),
        // One that is not there yet is the source's to report, each time it looks.
        _ => Ok(folder),
    }
}

fn fault_of(problem: Problem) -> Fault {
    let fault = Fault::tenant(FaultKind::Config, &problem.message).file(&problem.file).field(&problem.field);
    if problem.fix.is_empty() { fault } else { fault.fix(&problem.fix) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_tenant_reads_below_its_own_folder_only() {
        let dir = tempfile::tempdir().unwrap();
        let tenant = dir.path().join("t");
        std::fs::create_dir_all(tenant.join("in")).unwrap();
        std::os::unix::fs::symlink("/etc", tenant.join("out")).unwrap();
        assert_eq!(inside(&tenant, "in").unwrap(), tenant.join("in"));
        assert!(inside(&tenant, "later").is_ok());
        for bad in ["/etc", "../u/in", "in/../../u", "out"] {
            assert_eq!(inside(&tenant, bad).unwrap_err().field.as_deref(), Some("source.path"), "{bad}");
        }
    }
}
