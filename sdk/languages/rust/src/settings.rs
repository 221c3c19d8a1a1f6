//! Settings are a type: the JSON Schema, the documentation and the check.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{Error, text::clean_text, values};

const MAX_FAULTS: usize = 50;

/// A secret setting or token: it is not printed.
#[derive(Clone, Default, Deserialize, Eq, PartialEq)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The value. Never log it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Secret(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(empty)" } else { "(set)" })
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "writeOnly": true, "x-secret": true})
    }
}

/// A default is in the schema, and that of a secret is empty.
impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("")
    }
}

/// Returns the JSON Schema of a type of settings.
pub(crate) fn schema_of<S: JsonSchema>() -> Value {
    let inline = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    inline.into_generator().into_root_schema_for::<S>().to_value()
}

/// Reads settings, or returns all that is wrong with them, 50 faults at most.
pub(crate) fn read<S: DeserializeOwned>(schema: &Value, values: Value) -> Result<S, Vec<Error>> {
    let mut faults = Vec::new();
    check(schema, &values, "", "", false, &mut faults);
    if !faults.is_empty() {
        faults.truncate(MAX_FAULTS);
        return Err(faults);
    }
    serde_json::from_value(values).map_err(|e| {
        // Its text quotes values.
        let secret = schema.to_string().contains("\"writeOnly\":true");
        let why = if secret { "a value is out of its range".to_owned() } else { clean_text(&e.to_string(), &[]) };
        vec![Error::invalid(format!("the settings: {why}"))]
    })
}

fn check(schema: &Value, value: &Value, name: &str, pointer: &str, secret: bool, faults: &mut Vec<Error>) {
    let schema = &some(schema);
    let secret = secret || schema["writeOnly"] == true;
    let place = if name.is_empty() { "the settings".to_owned() } else { format!("the setting {}", clean_text(name, &[])) };
    let mut fault = |wanted: String| faults.push(Error::invalid(format!("{place}{}: want {wanted}", shown(value, secret))).at(pointer));
    if let Some(kind) = kind_of(schema)
        && !fits(kind, value)
        && !(value.is_null() && nullable(schema))
    {
        return fault(format!("{} {kind}", if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" }));
    }
    if let Some(allowed) = allowed(schema)
        && !allowed.contains(value)
    {
        let words: Vec<_> = allowed.iter().filter_map(Value::as_str).collect();
        return fault(format!("one of {}", words.join(", ")));
    }
    if let Some(takes) = values::wanted(schema, value) {
        let hidden = secret || value.as_str().is_some_and(|text| text.contains('@')); // a password may be before it
        return faults.push(Error::invalid(format!("{place}{}: want {takes}", shown(value, hidden))).at(pointer));
    }
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{name}[{i}]"), &format!("{pointer}/{i}"), secret, faults);
            }
        }
        Value::Object(fields) => check_object(schema, fields, name, pointer, secret, faults),
        _ => {}
    }
}

fn check_object(schema: &Value, fields: &Map<String, Value>, name: &str, pointer: &str, secret: bool, faults: &mut Vec<Error>) {
    let Some(known) = schema["properties"].as_object() else { return };
    let full = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    for (key, item) in fields {
        let at = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
        if let Some(of) = known.get(key) {
            check(of, item, &full(key), &at, secret, faults);
        } else {
            let there: Vec<_> = known.keys().map(String::as_str).collect();
            let text = format!("the setting {} is unknown: there are {}", clean_text(&full(key), &[]), there.join(", "));
            faults.push(Error::invalid(text).at(at));
        }
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(key) {
            let about = known[key]["description"].as_str().unwrap_or("it is required");
            faults.push(Error::invalid(format!("the setting {} is missing: {about}", full(key))).at(format!("{pointer}/{key}")));
        }
    }
}

/// Returns what an optional value's schema says of one that is there.
fn some(schema: &Value) -> Value {
    let variants = schema["anyOf"].as_array().map(|all| all.iter().filter(|v| v["type"] != "null").collect::<Vec<_>>());
    match variants.as_deref() {
        Some([one]) => {
            let mut merged = (*one).clone();
            merged["nullable"] = json!(true);
            merged
        }
        _ => schema.clone(),
    }
}

fn kind_of(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|k| *k != "null"),
        _ => None,
    }
}

fn nullable(schema: &Value) -> bool {
    schema["nullable"] == true || schema["type"].as_array().is_some_and(|kinds| kinds.contains(&json!("null")))
}

/// Returns the values of an enum, whose variants may have descriptions of their own.
fn allowed(schema: &Value) -> Option<Vec<Value>> {
    let variants = |all: &Vec<Value>| all.iter().map(|v| v.get("const").cloned()).collect::<Option<Vec<_>>>();
    schema["enum"].as_array().cloned().or_else(|| schema["oneOf"].as_array().and_then(variants))
}

fn fits(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn shown(value: &Value, secret: bool) -> String {
    match value {
        _ if secret => String::new(),
        Value::String(text) => format!(" is \"{}\"", clean_text(text, &[])),
        Value::Array(_) | Value::Object(_) => String::new(),
        other => format!(" is {other}"),
    }
}

/// Converts a `google.protobuf.Struct`; whole numbers, which it does not have, are integers again.
pub(crate) fn plain(fields: prost_types::Struct) -> Value {
    Value::Object(fields.fields.into_iter().map(|(key, value)| (key, plain_value(value))).collect())
}

fn plain_value(value: prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(b)) => json!(b),
        Some(Kind::StringValue(s)) => json!(s),
        Some(Kind::NumberValue(n)) if n.fract() == 0.0 && n.abs() < 9e15 => json!(n as i64),
        Some(Kind::NumberValue(n)) => json!(n),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(plain_value).collect(),
        Some(Kind::StructValue(fields)) => plain(fields),
    }
}
