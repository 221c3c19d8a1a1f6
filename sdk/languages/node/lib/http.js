// HTTP replies of a CA that are not what was asked for, as the errors that they mean.
'use strict';

const errors = require('./errors.js');

const LONGEST = 24 * 3600_000;
const BY_STATUS = {
  202: errors.Pending, 401: errors.Unauthenticated, 403: errors.Denied, 408: errors.Unavailable, 409: errors.Aborted,
  425: errors.RateLimited, 429: errors.RateLimited, 500: errors.Internal,
};

function httpError(status, {retryAfter = '', body, text = ''} = {}) {
  const said = text ? `: ${text}` : '';
  const error = new (kindOf(status, body))(`the CA answered with ${status}${said}`);
  const wait = waitOf(retryAfter ?? '', Date.now());
  if (wait) error.retryAfter = wait;
  return error;
}

// kindOf trusts a status that calls the request wrong only in an API's own form: a proxy answers 404
// until the CA behind it is there.
function kindOf(status, body) {
  if (BY_STATUS[status]) return BY_STATUS[status];
  const foreign = status >= 400 && body !== undefined && !isObject(body);
  return status >= 500 || foreign ? errors.Unavailable : errors.Invalid;
}

function isObject(body) {
  try {
    const value = JSON.parse(body);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

// waitOf reads Retry-After: seconds, or the time at which to come back (RFC 9110, section 10.2.3).
function waitOf(header, now) {
  const wait = /^[0-9]{1,10}$/.test(header) ? Number(header) * 1000 : / GMT$/.test(header) ? Date.parse(header) - now : 0;
  return Math.max(0, Math.min(wait || 0, LONGEST));
}

module.exports = {httpError};
