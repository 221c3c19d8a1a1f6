// Settings are fields: the JSON Schema, the documentation and the check.
'use strict';

const {Invalid, cleanText} = require('./errors.js');
const values = require('./values.js');

const DRAFT = 'https://json-schema.org/draft/2020-12/schema';
const MAX_FAULTS = 50;

// field completes the schema of one setting.
function field(schema, description, options = {}) {
  schema.description = description;
  if (options.default !== undefined) schema.default = options.default;
  if (options.secret) Object.assign(schema, {writeOnly: true, 'x-secret': true});
  if (options.address) schema['x-countersign-address'] = options.address;
  if (options.enum) schema.enum = options.enum;
  return {schema, optional: Boolean(options.optional) || options.default !== undefined};
}

const simple = (type) => (description, options) => field({type}, description, options);

const fields = {
  string: simple('string'),
  integer: simple('integer'),
  number: simple('number'),
  boolean: simple('boolean'),
  url: (description, {schemes = ['https'], ...options} = {}) => field(values.schemas.url(schemes), description, options),
  duration: (description, options) => field(values.schemas.duration(), description, options),
  file: (description, options) => field(values.schemas.file(), description, options),
  list: (item, description, options) => field({type: 'array', items: item.schema}, description, options),
  object: (of, description, options) => field(objectOf(of), description, options),
};

function objectOf(of) {
  const entries = Object.entries(of);
  return {
    type: 'object',
    additionalProperties: false,
    properties: Object.fromEntries(entries.map(([name, {schema}]) => [name, schema])),
    required: entries.filter(([, {optional}]) => !optional).map(([name]) => name),
  };
}

// schemaOf returns the JSON Schema of a class's settings.
const schemaOf = (of = {}) => ({$schema: DRAFT, ...objectOf(of)});

const FITS = {
  string: (v) => typeof v === 'string',
  boolean: (v) => typeof v === 'boolean',
  number: (v) => typeof v === 'number',
  integer: Number.isInteger,
  array: Array.isArray,
  object: (v) => typeof v === 'object' && v !== null && !Array.isArray(v),
};

// check returns all that the schema finds wrong, 50 faults at most.
function check(schema, value, name = '', pointer = '') {
  const where = name ? `the setting ${cleanText(name)}` : 'the settings';
  if (!FITS[schema.type](value)) {
    return [new Invalid(`${where}${is(schema, value)}: want ${/^[aio]/.test(schema.type) ? 'an' : 'a'} ${schema.type}`, pointer)];
  }
  if (schema.enum && !schema.enum.includes(value)) {
    return [new Invalid(`${where}${is(schema, value)}: want one of ${schema.enum.join(', ')}`, pointer)];
  }
  const wanted = values.wanted(schema, value);
  if (wanted) return [new Invalid(`${where}${value.includes('@') ? '' : is(schema, value)}: want ${wanted}`, pointer)]; // a password may be before the @
  const inner = schema.writeOnly ? {writeOnly: true} : {};
  if (schema.type === 'array') {
    return value.flatMap((item, i) => check({...schema.items, ...inner}, item, `${name}[${i}]`, `${pointer}/${i}`)).slice(0, MAX_FAULTS);
  }
  return schema.type === 'object' ? checkObject(schema, inner, value, name, pointer).slice(0, MAX_FAULTS) : [];
}

function checkObject({properties, required}, inner, value, name, pointer) {
  const prefix = name && `${name}.`;
  const faults = Object.entries(value).flatMap(([key, item]) => {
    const at = `${pointer}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    if (Object.hasOwn(properties, key)) return check({...properties[key], ...inner}, item, prefix + key, at);
    return [new Invalid(`the setting ${cleanText(prefix + key)} is unknown: there are ${Object.keys(properties).join(', ')}`, at)];
  });
  const missing = required.filter((key) => !Object.hasOwn(value, key));
  return faults.concat(missing.map((key) =>
    new Invalid(`the setting ${prefix}${key} is missing: ${properties[key].description}`, `${pointer}/${key}`)));
}

function is(schema, value) {
  if (schema.writeOnly || (typeof value === 'object' && value !== null)) return '';
  return ` is ${typeof value === 'string' ? `"${cleanText(value)}"` : value}`;
}

// complete fills in the defaults, and reads what is written as text.
function complete(schema, value) {
  if (schema.type === 'array') return value.map((item) => complete(schema.items, item));
  if (schema.type !== 'object') return values.read(schema, value);
  const known = Object.entries(schema.properties).filter(([key, of]) => Object.hasOwn(value, key) || of.default !== undefined);
  return Object.fromEntries(known.map(([key, of]) => [key, complete(of, Object.hasOwn(value, key) ? value[key] : of.default)]));
}

module.exports = {fields, schemaOf, check, complete};
