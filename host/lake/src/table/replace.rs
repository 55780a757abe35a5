//! Rows that take the place of others. Of tables of our own only those files are read whose statistics leave open whether
//! they hold a row that is taken away; what stays of them is written anew.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Expr, lit};
use deltalake::kernel::Transaction;
use deltalake::kernel::transaction::CommitBuilder;
use deltalake::protocol::{DeltaOperation, SaveMode};
use weir_model::columns::timestamp_type;
use weir_model::port::{Pages, Replace};
use weir_model::{Fault, FaultKind, FaultPoints, Time};

use super::create::{lacking, plain, quiet};
use super::entry::{Reason, entry};
use super::files::LiveFile;
use super::folder::{Folder, Put};
use super::held::{Held, load, open, read_files};
use super::rewrite::{FileRows, RowWriter, discard};
use super::writer::{Attempt, TRIES, Writer, same_table};
use crate::error::delta_fault;
use crate::normalise::{adapt, type_word};
use crate::query::timestamp;

/// Rows that are in memory together at most, where a table is not written a page at a time.
const MOST_BYTES: usize = 512 << 20;

/// Which rows are taken away.
#[derive(Debug, Clone)]
struct Target {
    matching: Vec<(String, String)>,
    between: Option<(String, Time, Time)>,
}

/// How many of a file's rows are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    None,
    /// Only reading the file tells.
    Open,
    All,
}

impl Writer {
    /// Replaces rows of the table with this id.
    pub(super) async fn replace(&mut self, id: &str, what: &Replace) -> Result<(), Fault> {
        let target = Target { matching: what.matching.clone(), between: what.between.clone() };
        let apps = [(what.app.clone(), what.version)];
        for _ in 0..TRIES {
            let folder = self.folder.clone();
            self.current(&[&what.app]).await?;
            // Taken out: whatever goes wrong below leaves the table to be read anew.
            let Some(mut held) = self.held.take() else { continue };
            same_table(&folder, &held, id)?;
            if held.apps.get(&what.app).copied().flatten().is_some_and(|v| what.version <= v) {
                self.held = Some(held);
                return Ok(());
            }
            let schema = what.rows.schema().map_or_else(|| Arc::new(Schema::empty()), |schema| plain(&schema));
            let missing = lacking(&held.schema, &schema, &folder.name)?;
            if !missing.is_empty() {
                self.widen(&missing).await?;
                continue;
            }
            target.check(&held.schema, &folder.name)?;
            let rows = New {
                pages: what.rows.clone(),
                target: target.clone(),
                schema: held.schema.clone(),
                table: folder.name.clone(),
            };
            if held.append_only {
                return Err(Fault::external(FaultKind::Sink, "rows cannot be replaced: the table is append-only")
                    .file(&folder.name)
                    .field("delta.appendOnly")
                    .fix("set this property of the table to false"));
            }
            let attempt = if held.plain && read_files(&folder, &mut held).await? {
                self.replace_plain(&held, rows, &apps).await
            } else {
                self.replace_ordinary(&held, rows, &apps).await
            };
            match attempt {
                Ok(Attempt::Taken) => {}
                Ok(done) => {
                    self.done(held, done, &apps);
                    return Ok(());
                }
                Err(fault) => {
                    if fault.kind == FaultKind::Injected || !self.landed(id, &apps).await {
                        return Err(fault);
                    }
                    return Ok(());
                }
            }
        }
        Err(self.outrun())
    }

    async fn replace_plain(&self, held: &Held, new: New, apps: &[(String, i64)]) -> Result<Attempt, Fault> {
        let work = Work {
            folder: self.folder.clone(),
            version: held.version + 1,
            files: held.files.clone().unwrap_or_default(),
            file_bytes: self.settings.file_bytes,
            new,
            apps: apps.to_vec(),
        };
        let faults = self.faults.clone();
        tokio::task::spawn_blocking(move || work.run(faults.as_ref())).await.map_err(Fault::internal)?
    }

    /// The table format's own way, for tables that ask more of a writer.
    async fn replace_ordinary(&self, held: &Held, new: New, apps: &[(String, i64)]) -> Result<Attempt, Fault> {
        let name = self.folder.name.clone();
        let fault = |e| delta_fault(&name, &e);
        let table = open(&self.folder).await?.ok_or_else(|| self.folder.missing())?;
        let transactions = || apps.iter().map(|(app, version)| Transaction::new(app, *version)).collect();
        let properties = quiet().with_application_transactions(transactions());
        let target = new.target.clone();
        let rows = tokio::task::spawn_blocking(move || new.together()).await.map_err(Fault::internal)??;
        if rows.iter().any(|batch| batch.num_rows() > 0) {
            let mut write = table.write(rows).with_save_mode(SaveMode::Overwrite).with_commit_properties(properties);
            if let Some(predicate) = target.expression() {
                write = write.with_replace_where(predicate);
            }
            write.await.map_err(fault)?;
        } else {
            let mut delete = table.delete().with_commit_properties(properties);
            if let Some(predicate) = target.expression() {
                delete = delete.with_predicate(predicate);
            }
            delete.await.map_err(fault)?;
        }
        if !self.landed_ordinary(apps).await? {
            // Nothing had to be taken away, so nothing was written; that it was asked for is remembered all the same.
            let table = open(&self.folder).await?.ok_or_else(|| self.folder.missing())?;
            let properties = quiet().with_application_transactions(transactions());
            let predicate = Some(target.text());
            let operation = DeltaOperation::Delete { predicate };
            let (state, log) = (table.snapshot().map_err(fault)?, table.log_store());
            CommitBuilder::from(properties).build(Some(state), log, operation).await.map_err(fault)?;
        }
        self.ordinary_done(held)
    }

    async fn landed_ordinary(&self, apps: &[(String, i64)]) -> Result<bool, Fault> {
        let names: Vec<&str> = apps.iter().map(|(app, _)| app.as_str()).collect();
        let held = load(&self.folder, &names).await?.ok_or_else(|| self.folder.missing())?;
        Ok(apps.iter().all(|(app, version)| held.apps.get(app).copied().flatten() >= Some(*version)))
    }
}

/// A replacement of a plain table's rows, with all that a blocking thread needs.
struct Work {
    folder: Folder,
    version: u64,
    files: Vec<LiveFile>,
    file_bytes: u64,
    new: New,
    apps: Vec<(String, i64)>,
}

/// The new rows, and which ones they take the place of.
struct New {
    pages: Arc<dyn Pages>,
    target: Target,
    /// The table's.
    schema: SchemaRef,
    table: String,
}

impl New {
    /// Page by page in the table's schema. One that would not be replaced itself is the caller's defect.
    fn each(&self, take: &mut dyn FnMut(RecordBatch) -> Result<(), Fault>) -> Result<(), Fault> {
        let what = format!("table {}", self.table);
        self.pages.each(&mut |page| {
            let page = adapt(&page, &self.schema, &what).map_err(|f| Fault { kind: FaultKind::Sink, ..f })?;
            if self.target.staying(&page)?.true_count() > 0 {
                return Err(Fault::internal(format_args!("{what}: rows come in the place of others than they are")));
            }
            take(page)
        })
    }
}

impl New {
    /// All of them, for a table that is not written a page at a time.
    fn together(&self) -> Result<Vec<RecordBatch>, Fault> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        self.each(&mut |page| {
            bytes += page.get_array_memory_size();
            if bytes > MOST_BYTES {
                let message = format_args!(
                    "the rows that are to be put in have more than {MOST_BYTES} bytes, and those of a table with \
                     partitions or properties of other writers are in memory together"
                );
                return Err(Fault::tenant(FaultKind::Output, message)
                    .file(&self.table)
                    .fix("put them in in parts, such as a backfill of a shorter range, or use another table"));
            }
            rows.push(page);
            Ok(())
        })?;
        Ok(rows)
    }
}

impl Work {
    fn run(self, faults: &dyn FaultPoints) -> Result<Attempt, Fault> {
        let mut writer = RowWriter::new(&self.folder, &self.new.schema, self.file_bytes);
        let mut removed = Vec::new();
        for file in &self.files {
            let gone = match self.new.target.reach(file) {
                Reach::None => false,
                Reach::All => true,
                Reach::Open => self.rewrite(file, &mut writer)?,
            };
            if gone {
                removed.push(file.clone());
            }
        }
        self.new.each(&mut |page| writer.write(&page))?;
        let added = writer.finish()?;
        let entry = entry(&Reason::Replace(self.new.target.text()), &added, &removed, &self.apps)?;
        let staged = self.folder.stage(None, &entry)?;
        faults.pass("sink.file-written")?;
        match self.folder.put_entry(self.version, &staged)? {
            Put::Done(stamp) => {
                faults.pass("sink.entry-put")?;
                Ok(Attempt::Done { stamp, added, removed })
            }
            Put::Taken => {
                discard(&self.folder, &added);
                Ok(Attempt::Taken)
            }
        }
    }

    /// Writes the rows of a file that stay. False when all of them do: then the file itself stays and nothing is written.
    fn rewrite(&self, file: &LiveFile, writer: &mut RowWriter<'_>) -> Result<bool, Fault> {
        // Batches before the first one that loses a row: written once it is known that the file goes.
        let mut whole = 0;
        let mut going = false;
        for (at, batch) in FileRows::open(&self.folder, &self.new.schema, file)?.enumerate() {
            let batch = batch?;
            let stay = self.new.target.staying(&batch)?;
            if stay.true_count() == batch.num_rows() && !going {
                whole = at + 1;
                continue;
            }
            if !going {
                going = true;
                for earlier in FileRows::open(&self.folder, &self.new.schema, file)?.take(whole) {
                    writer.write(&earlier?)?;
                }
            }
            writer.write(&filter_record_batch(&batch, &stay).map_err(Fault::internal)?)?;
        }
        Ok(going)
    }
}

impl Target {
    /// Whether the table has the columns, in types that fit.
    fn check(&self, schema: &Schema, name: &str) -> Result<(), Fault> {
        let time = self.between.iter().map(|(column, ..)| (column, timestamp_type()));
        let texts = self.matching.iter().map(|(column, _)| (column, DataType::Utf8));
        for (column, wanted) in texts.chain(time) {
            let refuse = |message: String| Fault::tenant(FaultKind::SinkMismatch, message).file(name).field(column);
            let there = schema
                .field_with_name(column)
                .map_err(|_| refuse(format!("rows are replaced by column {column}, which the table lacks")))?;
            if there.data_type() != &wanted {
                let (is, want) = (type_word(there.data_type()), type_word(&wanted));
                return Err(refuse(format!("rows are replaced by column {column}, which is {is} there and no {want}")));
            }
        }
        Ok(())
    }

    fn reach(&self, file: &LiveFile) -> Reach {
        let stats = file.stats();
        let mut all = true;
        for (column, value) in &self.matching {
            if stats.empty(column) {
                return Reach::None;
            }
            let Some((low, high, exact)) = stats.texts(column) else {
                all = false;
                continue;
            };
            if value.as_str() < low || value.as_str() > high {
                return Reach::None;
            }
            all &= exact && low == value && high == value && stats.filled(column);
        }
        if let Some((column, from, to)) = &self.between {
            if from >= to || stats.empty(column) {
                return Reach::None;
            }
            match stats.times(column) {
                Some((low, high)) if high < *from || low >= *to => return Reach::None,
                Some((low, high)) => all &= low >= *from && high < *to && stats.filled(column),
                None => all = false,
            }
        }
        if all { Reach::All } else { Reach::Open }
    }

    /// Which rows are not taken away.
    fn staying(&self, batch: &RecordBatch) -> Result<BooleanArray, Fault> {
        let column = |name: &str| {
            batch.column_by_name(name).ok_or_else(|| Fault::internal(format_args!("rows without column {name}")))
        };
        let mut texts = Vec::with_capacity(self.matching.len());
        for (name, value) in &self.matching {
            let column = column(name)?.as_string_opt::<i32>();
            texts.push((column.ok_or_else(|| Fault::internal("a text column that is none"))?, value.as_str()));
        }
        let time = match &self.between {
            Some((name, from, to)) => {
                let column = column(name)?.as_primitive_opt::<TimestampMicrosecondType>();
                let column = column.ok_or_else(|| Fault::internal("a timestamp column that is none"))?;
                Some((column, from.micros()..to.micros()))
            }
            None => None,
        };
        let mut stay = BooleanBuilder::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let goes = texts.iter().all(|(column, value)| column.is_valid(row) && column.value(row) == *value)
                && time
                    .as_ref()
                    .is_none_or(|(column, range)| column.is_valid(row) && range.contains(&column.value(row)));
            stay.append_value(!goes);
        }
        Ok(stay.finish())
    }

    /// For people who read the table's history.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut and = |part: String| {
            let _ = write!(text, "{}{part}", if text.is_empty() { "" } else { " AND " });
        };
        for (column, value) in &self.matching {
            and(format!("{column} = '{}'", value.replace('\'', "''")));
        }
        if let Some((column, from, to)) = &self.between {
            and(format!("{column} >= '{from}' AND {column} < '{to}'"));
        }
        text
    }

    fn expression(&self) -> Option<Expr> {
        let column = |name: &str| Expr::Column(Column::from_name(name));
        let matching =
            self.matching.iter().map(|(name, value)| column(name).eq(lit(ScalarValue::from(value.as_str()))));
        let between = self.between.iter().map(|(name, from, to)| {
            let time = |at: &Time| lit(timestamp(at.micros()));
            column(name).gt_eq(time(from)).and(column(name).lt(time(to)))
        });
        matching.chain(between).reduce(Expr::and)
    }
}
