//! Rules over fixtures: the input objects, and the columns of an answer.

use serde_json::{Map, Value};

use super::frame::rows_of;
use super::rows::{Rows, from_json, to_json};
use crate::backend::RuleCall;
use crate::frame::index;
use crate::{DataError, Fault, Field, Kind, RowFault, Scalar};

/// A rule of a fixture.
pub(super) type Judge = Box<dyn Fn(&Value) -> Result<Value, String>>;

/// Evaluates as a host does, but for bytes, which a host passes as base64.
pub(super) fn evaluate(judge: &Judge, call: &RuleCall<'_>) -> Result<(Rows, Vec<RowFault>), Fault> {
    let given = call.rows.iter().map(|(_, rows)| *rows).chain(call.each);
    let kinds = given.flat_map(|frame| rows_of(frame).fields.iter().map(|field| field.kind));
    let bytes = kinds.chain(call.want.iter().map(|(_, kind)| *kind)).any(|kind| kind == Kind::Bytes);
    assert!(!bytes, "rule '{}': a kit evaluates no rules over bytes", call.name);

    let mut common = Map::new();
    for named in &call.values {
        common.insert(named.name.clone(), to_json(&named.value, Kind::Text));
    }
    for (name, rows) in &call.rows {
        common.insert((*name).to_owned(), rows_of(rows).to_json().into());
    }
    let Some(each) = call.each else {
        let answer = rows(judge, call, &Value::Object(common)).map_err(DataError::Failed)?;
        return Ok((columns(call, answer), Vec::new()));
    };

    let (mut answers, mut failed) = (Vec::new(), Vec::new());
    for (row, object) in rows_of(each).to_json().into_iter().enumerate() {
        let mut input = common.clone();
        if let Value::Object(object) = object {
            input.extend(object);
        }
        match rows(judge, call, &Value::Object(input)) {
            Ok(answer) => answers.extend(answer),
            Err(reason) => {
                failed.push(RowFault { row: index(row), reason });
                if call.unnest.is_none() {
                    answers.push(vec![Scalar::Null; call.want.len()]);
                }
            }
        }
    }
    Ok((columns(call, answers), failed))
}

/// The answer's rows out of one evaluation.
fn rows(judge: &Judge, call: &RuleCall<'_>, input: &Value) -> Result<Vec<Vec<Scalar>>, String> {
    let result = judge(input)?;
    let elements = match call.unnest.map(|path| (path, at(&result, path))) {
        None => std::slice::from_ref(&result),
        Some((_, Value::Array(elements))) => elements,
        Some((_, Value::Null)) => &[],
        Some((path, _)) => return Err(format!("no array at '{path}'")),
    };
    let want = |element: &Value| {
        let cell = |(path, kind): &(&str, Kind)| {
            from_json(at(element, path), *kind).ok_or_else(|| format!("what stands at '{path}' is no {kind}"))
        };
        call.want.iter().map(cell).collect()
    };
    elements.iter().map(want).collect()
}

/// What stands at a path such as `limits.0.upper`; null where nothing does.
fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    static NOTHING: Value = Value::Null;
    path.split('.').filter(|step| !step.is_empty()).try_fold(value, |value, step| value.get(step)).unwrap_or(&NOTHING)
}

fn columns(call: &RuleCall<'_>, answers: Vec<Vec<Scalar>>) -> Rows {
    let wanted = call.want.iter().enumerate();
    wanted.fold(Rows::new(), |rows, (i, (path, kind))| {
        let cells = answers.iter().map(|cells| cells[i].clone());
        rows.with(Field::nullable(*path, *kind), cells.collect())
    })
}
