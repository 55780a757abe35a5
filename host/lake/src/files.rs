//! Plain files of rows, outside of any table.

use arrow_array::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use weir_model::Fault;

/// Rows as the bytes of a Parquet file.
pub fn parquet(rows: &RecordBatch) -> Result<Vec<u8>, Fault> {
    let properties =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_created_by("weir".to_owned()).build();
    let mut bytes = Vec::new();
    ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties))
        .and_then(|mut writer| {
            writer.write(rows)?;
            writer.close()
        })
        .map_err(Fault::internal)?;
    Ok(bytes)
}
