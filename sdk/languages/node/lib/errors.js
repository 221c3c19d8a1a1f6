// Errors by what they mean to the agent.
'use strict';

const {status} = require('@grpc/grpc-js');

const MAX_TEXT = 256;
const MIN_PIECE = 16;

class ProviderError extends Error {
  static code = status.UNKNOWN;
  static reason = 'UNKNOWN';
  constructor(text, {retryAfter} = {}) {
    super(text);
    this.retryAfter = retryAfter;
  }
}

// kind returns a class with a status code and the reason that belongs to it.
const kind = (code, reason, name) => ({[name]: class extends ProviderError {
  static code = code;
  static reason = reason;
}})[name];

const Denied = kind(status.PERMISSION_DENIED, 'DENIED', 'Denied');
const Unauthenticated = kind(status.UNAUTHENTICATED, 'UNAUTHENTICATED', 'Unauthenticated');
const RateLimited = kind(status.RESOURCE_EXHAUSTED, 'RATE_LIMITED', 'RateLimited');
const Unavailable = kind(status.UNAVAILABLE, 'UNAVAILABLE', 'Unavailable');
const Pending = kind(status.UNAVAILABLE, 'PENDING', 'Pending');
const Aborted = kind(status.ABORTED, 'ABORTED', 'Aborted');
const Internal = kind(status.INTERNAL, 'INTERNAL', 'Internal');
const NotConfigured = kind(status.FAILED_PRECONDITION, 'NOT_CONFIGURED', 'NotConfigured');

class Invalid extends kind(status.INVALID_ARGUMENT, 'INVALID', 'Invalid') {
  constructor(text, pointer = '') {
    super(text);
    this.pointer = pointer;
  }
}

class RetryAfter extends RateLimited {
  constructor(milliseconds, text) {
    super(text, {retryAfter: milliseconds});
  }
}

function cleanText(text, ...tokens) {
  text = String(text).slice(0, 64 * MAX_TEXT);
  for (const token of tokens.filter(Boolean)) text = without(text, token);
  text = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  return new TextDecoder().decode(Buffer.from(text).subarray(0, MAX_TEXT)).replace(/\uFFFD+$/u, '');
}

// without replaces a token, and each piece of one of 16 characters or more.
function without(text, token) {
  text = text.replaceAll(token, '(secret)');
  let out = '';
  for (let at = 0; at < text.length;) {
    let end = at + MIN_PIECE;
    if (end > text.length || !token.includes(text.slice(at, end))) {
      out += text[at++];
      continue;
    }
    while (end < text.length && token.includes(text.slice(at, end + 1))) end++;
    out += '(secret)';
    at = end;
  }
  return out;
}

module.exports = {
  ProviderError, Invalid, Denied, Unauthenticated, RateLimited, RetryAfter, Unavailable, Pending, Aborted, Internal, NotConfigured,
  cleanText,
};
