//! Checks of the JSON schemas of input and output nodes.
//!
//! The engine's validator fetches what a `$ref` or `$schema` names, also `http:` and `file:` addresses, on the host. So
//! only what stands in the schema itself may be named.

use serde_json::Value;

use crate::expression::Fixable;

/// Whether the `schema` of a node may be used.
pub(crate) fn check(schema: &Value) -> Result<(), Fixable> {
    let text = match schema {
        Value::Null => return Ok(()),
        Value::String(text) if text.trim().is_empty() => return Ok(()),
        Value::String(text) => text,
        _ => {
            return Err(Fixable {
                message: "the schema is not a text".to_owned(),
                fix: "write the schema as a JSON string, as the editor does",
            });
        }
    };
    // The engine would silently validate nothing.
    let schema: Value = serde_json::from_str(text).map_err(|e| Fixable {
        message: format!("the schema is not JSON: {e}"),
        fix: "correct the schema, or remove it",
    })?;
    walk(&schema, true)
}

fn walk(value: &Value, root: bool) -> Result<(), Fixable> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, false)),
        Value::Object(fields) => {
            for (name, value) in fields {
                key(name, value, root)?;
                walk(value, false)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn key(name: &str, value: &Value, root: bool) -> Result<(), Fixable> {
    let refuse = |message: String, fix| Err(Fixable { message, fix });
    match (name, value) {
        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) if !target.starts_with('#') => refuse(
            format!("the schema's {name} '{target}' is not local"),
            "copy what it refers to into the schema, and write \"#/definitions/NAME\"",
        ),
        ("$schema", Value::String(target)) if !root || !known_meta_schema(target) => refuse(
            format!("the schema's $schema '{target}' is not known, or not at its top"),
            "remove $schema: schemas are read as draft 7",
        ),
        // A base for what stands inside would make local references point elsewhere.
        ("$id", Value::String(target)) if !root && !target.starts_with('#') => refuse(
            format!("the schema gives a part of itself the $id '{target}'"),
            "remove it, and refer to the part as \"#/definitions/NAME\"",
        ),
        ("$dictionary", _) => refuse(
            "the schema uses a $dictionary, which stands in another document".to_owned(),
            "list the values as an enum",
        ),
        _ => Ok(()),
    }
}

fn known_meta_schema(target: &str) -> bool {
    target.starts_with("http://json-schema.org/draft-") || target.starts_with("https://json-schema.org/draft/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(schema: Value) -> String {
        check(&Value::String(schema.to_string())).expect_err("refused").message
    }

    #[test]
    fn only_local_references_are_taken() {
        for target in ["http://localhost:1/a.json", "file:///etc/hostname", "other.json", "//host/a", ""] {
            let schema = json!({"properties": {"a": {"$ref": target}}});
            assert!(refused(schema).contains("is not local"), "{target}");
        }
        let nested = json!({"definitions": {"a": {"allOf": [{"$ref": "http://localhost:1/"}]}}});
        assert!(refused(nested).contains("is not local"));
        let local = json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://localhost/a",
            "$ref": "#/definitions/a", "definitions": {"a": {"type": "object", "properties": {"$id": {"type": "string"}}}}});
        check(&Value::String(local.to_string())).expect("all of it is local");
    }

    #[test]
    fn what_the_validator_would_fetch_otherwise_is_refused() {
        assert!(refused(json!({"$schema": "http://localhost:1/meta"})).contains("$schema"));
        assert!(refused(json!({"items": {"$id": "http://localhost:1/b", "$ref": "#/c"}})).contains("$id"));
        assert!(refused(json!({"properties": {"a": {"$dictionary": "b"}}})).contains("$dictionary"));
    }

    #[test]
    fn a_schema_is_a_text_of_json() {
        assert!(check(&json!({"type": "object"})).is_err());
        assert!(check(&json!("{type: object}")).is_err());
        check(&json!("")).expect("none");
        check(&Value::Null).expect("none");
    }
}
