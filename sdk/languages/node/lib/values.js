// Settings that are written as text and read as something else.
'use strict';

const fs = require('node:fs');
const {setTimeout: sleep} = require('node:timers/promises');
const {Unavailable} = require('./errors.js');

const MAX_FILE = 1 << 20;
const EVERY = 1000; // milliseconds
const UNITS = {ns: 1e-6, us: 1e-3, 'µs': 1e-3, ms: 1, s: 1000, m: 60_000, h: 3600_000};

// schemas are those that Go's library writes for the same settings.
const schemas = {
  url: (schemes) => ({type: 'string', format: 'uri', pattern: `^(${schemes.join('|')})://[^/?#@]+(/[^?#]*)?$`, examples: [`${schemes[0]}://ca.example.com:8443/path`]}),
  duration: () => ({type: 'string', format: 'go-duration', pattern: '^([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$', examples: ['90s', '24h']}),
  file: () => ({type: 'string', format: 'path', minLength: 1, examples: ['/etc/ca/file']}),
};

// wanted returns what a value has to be if it is not.
function wanted(schema, value) {
  const takes = {uri: 'a URL', 'go-duration': 'a duration, 0 or more with a unit,', path: 'the path of a file'}[schema.format];
  if (!takes) return '';
  const fits = schema.pattern ? new RegExp(schema.pattern, 'u').test(value) : value && !value.includes('\0');
  return fits ? '' : `${takes} such as ${schema.examples.join(' or ')}`;
}

// read returns what an author gets.
function read(schema, value) {
  switch (schema.format) {
    case 'uri': return value.replace(/\/$/, '');
    case 'go-duration': return milliseconds(value);
    case 'path': return new File(value);
    default: return value;
  }
}

function milliseconds(text) {
  const parts = [...text.matchAll(/([0-9.]+)(ns|us|µs|ms|s|m|h)/g)];
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit], 0);
}

class File {
  constructor(path) {
    this.path = path;
  }

  // read does not wait at a named pipe.
  read() {
    let file;
    try {
      file = fs.openSync(this.path, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
      const info = fs.fstatSync(file);
      if (!info.isFile() || info.size > MAX_FILE) throw new Unavailable(`${this.path} is not a regular file of at most ${MAX_FILE} bytes`);
      return fs.readFileSync(file);
    } catch (error) {
      if (!error.code || error instanceof Unavailable) throw error;
      throw new Unavailable(`failed to read ${this.path}: ${error.code}`);
    } finally {
      if (file !== undefined) fs.closeSync(file);
    }
  }

  // Content decides: a time or a link that changes says nothing about it.
  async changed(content, {signal} = {}) {
    for (;;) {
      try {
        const now = this.read();
        if (!now.equals(content)) return now;
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error; // as while it is replaced
      }
      await sleep(EVERY, null, {signal});
    }
  }

  toString() {
    return this.path;
  }
}

module.exports = {schemas, wanted, read};
