//! Binds what changes per batch into a plan that is kept: parameters and tables stand in a cell that the plan reads.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use weir_model::columns::{ColumnType, Scalar, kind_of};
use weir_model::{CallError, DataError};

use super::scan::TableRows;

/// What one run of a plan reads.
#[derive(Debug, Default)]
pub(crate) struct Binding {
    /// By position.
    pub params: Vec<ScalarValue>,
    /// By name.
    pub tables: HashMap<String, Arc<TableRows>>,
}

/// Where one plan's functions and scans find the binding of the run that is under way.
#[derive(Debug, Default)]
pub(crate) struct Cell(Mutex<Option<Arc<Binding>>>);

impl Cell {
    /// Puts a binding in, or takes it out.
    pub fn set(&self, binding: Option<Arc<Binding>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = binding;
    }

    fn get(&self) -> Result<Arc<Binding>> {
        let bound = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match bound.as_ref() {
            Some(binding) => Ok(binding.clone()),
            None => internal_err!("a plan runs without its inputs"),
        }
    }

    pub fn table(&self, name: &str) -> Result<Arc<TableRows>> {
        match self.get()?.tables.get(name) {
            Some(rows) => Ok(rows.clone()),
            None => internal_err!("table {name} is not bound"),
        }
    }

    fn param(&self, index: usize) -> Result<ScalarValue> {
        match self.get()?.params.get(index) {
            Some(value) => Ok(value.clone()),
            None => internal_err!("parameter {index} is not bound"),
        }
    }
}

/// A parameter of a kept plan. Volatile, so that no rule takes its value for a constant.
#[derive(Debug)]
struct Param {
    index: usize,
    ty: DataType,
    cell: Arc<Cell>,
    signature: Signature,
}

impl PartialEq for Param {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && Arc::ptr_eq(&self.cell, &other.cell)
    }
}
impl Eq for Param {}
impl Hash for Param {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
        Arc::as_ptr(&self.cell).hash(state);
    }
}

impl ScalarUDFImpl for Param {
    fn name(&self) -> &str {
        "parameter"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.ty.clone())
    }
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.cell.param(self.index).map(ColumnarValue::Scalar)
    }
}

/// Puts functions that read the cell in the place of placeholders `$1`, `$2`, ... Names of columns stay as they are.
pub(crate) fn bind(plan: LogicalPlan, cell: &Arc<Cell>) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| {
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            if !expr.exists(|e| Ok(matches!(e, Expr::Placeholder(_))))? {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            Ok(expr.transform_up(|e| bind_one(e, cell))?.update_data(|e| name.restore(e)))
        })
    })
    .map(|done| done.data)
}

fn bind_one(expr: Expr, cell: &Arc<Cell>) -> Result<Transformed<Expr>> {
    let Expr::Placeholder(placeholder) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let index = placeholder.id.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
    let (Some(index), Some(field)) = (index, &placeholder.field) else {
        return Err(DataFusionError::Plan(format!("parameter {} has no type here", placeholder.id)));
    };
    let param = Param {
        index: index - 1,
        ty: field.data_type().clone(),
        cell: cell.clone(),
        signature: Signature::nullary(Volatility::Volatile),
    };
    Ok(Transformed::yes(ScalarUDF::from(param).call(Vec::new())))
}

/// A guest's value as the declared type. Null fits everywhere; int64 fits where no value is lost.
pub(crate) fn scalar(value: &Scalar, ty: ColumnType) -> std::result::Result<ScalarValue, CallError> {
    let wrong = || CallError::Data(DataError::WrongKind(kind_of(&ty.arrow())));
    Ok(match (value, ty) {
        (Scalar::Null, _) => ScalarValue::try_from(&ty.arrow()).map_err(|_| wrong())?,
        (Scalar::Boolean(v), ColumnType::Boolean) => ScalarValue::Boolean(Some(*v)),
        (Scalar::Int64(v), ColumnType::Int64) => ScalarValue::Int64(Some(*v)),
        (Scalar::Int64(v), ColumnType::Int32) => {
            ScalarValue::Int32(Some(i32::try_from(*v).map_err(|_| DataError::OutOfRange)?))
        }
        #[allow(clippy::cast_precision_loss)]
        (Scalar::Int64(v), ColumnType::Float64) => ScalarValue::Float64(Some(*v as f64)),
        (Scalar::Float64(v), ColumnType::Float64) => ScalarValue::Float64(Some(*v)),
        (Scalar::Int64(v), ColumnType::Decimal { precision, scale }) => decimal(&v.to_string(), precision, scale)?,
        (Scalar::Decimal(v), ColumnType::Decimal { precision, scale }) => decimal(v, precision, scale)?,
        (Scalar::Text(v), ColumnType::Text) => ScalarValue::Utf8(Some(v.clone())),
        (Scalar::Text(v), ColumnType::Date) => date(v)?,
        (Scalar::Bytes(v), ColumnType::Bytes) => ScalarValue::Binary(Some(v.clone())),
        (Scalar::Timestamp(v), ColumnType::Timestamp) => timestamp(*v),
        _ => return Err(wrong()),
    })
}

/// A timestamp as SQL sees it.
pub(crate) fn timestamp(micros: i64) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into()))
}

fn date(text: &str) -> std::result::Result<ScalarValue, DataError> {
    let day = text.parse::<chrono::NaiveDate>().map_err(|_| DataError::Malformed)?;
    let days = day.signed_duration_since(chrono::NaiveDate::default()).num_days();
    let days = i32::try_from(days).map_err(|_| DataError::OutOfRange)?;
    Ok(ScalarValue::Date32(Some(days)))
}

/// Decimal text, exactly: digits beyond the scale are an error, never rounded away.
fn decimal(text: &str, precision: u8, scale: i8) -> std::result::Result<ScalarValue, DataError> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !all(whole) || !all(fraction) {
        return Err(DataError::Malformed);
    }
    let fraction = fraction.trim_end_matches('0');
    let scale_digits = usize::try_from(scale).unwrap_or(0);
    let Some(zeros) = scale_digits.checked_sub(fraction.len()) else {
        return Err(DataError::OutOfRange);
    };
    let text = format!("{whole}{fraction}{}", "0".repeat(zeros));
    let text = text.trim_start_matches('0');
    if text.len() > usize::from(precision) {
        return Err(DataError::OutOfRange);
    }
    let value: i128 = match text {
        "" => 0,
        text => text.parse().map_err(|_| DataError::OutOfRange)?,
    };
    let value = if negative { -value } else { value };
    Ok(ScalarValue::Decimal128(Some(value), precision, scale))
}
