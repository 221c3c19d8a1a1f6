// The protocol's messages, from its descriptor, and what they are to an author.
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');
const {Internal, Invalid, cleanText} = require('./errors.js');

const MAX_PEM = 1 << 20;
const MAX_CSR = 64 << 10;
const MAX_TOKEN = 64 << 10;
const MAX_NAMES = 1000;
const MAX_WORD = 2048;
const MAX_LISTS = 3 << 20;
const MAX_AUDIENCES = 64;
const MAX_JWT = 16 << 10;

const OPTIONS = {enums: String, longs: Number, oneofs: true, defaults: false};

// Health is grpc.health.v1.
const HEALTH = {nested: {grpc: {nested: {health: {nested: {v1: {nested: {
  Health: {methods: {Check: {requestType: 'HealthCheckRequest', responseType: 'HealthCheckResponse'}}},
  HealthCheckRequest: {fields: {service: {type: 'string', id: 1}}},
  HealthCheckResponse: {
    fields: {status: {type: 'ServingStatus', id: 1}},
    nested: {ServingStatus: {values: {UNKNOWN: 0, SERVING: 1, NOT_SERVING: 2, SERVICE_UNKNOWN: 3}}},
  },
}}}}}}}};

// The details of google.rpc.Status.
const DETAILS = protobuf.Root.fromJSON({nested: {
  Status: {fields: {code: {type: 'int32', id: 1}, message: {type: 'string', id: 2}, details: {rule: 'repeated', type: 'Any', id: 3}}},
  Any: {fields: {type_url: {type: 'string', id: 1}, value: {type: 'bytes', id: 2}}},
  ErrorInfo: {fields: {reason: {type: 'string', id: 1}, domain: {type: 'string', id: 2}}},
  RetryInfo: {fields: {retryDelay: {type: 'Duration', id: 1}}},
  Duration: {fields: {seconds: {type: 'int64', id: 1}, nanos: {type: 'int32', id: 2}}},
}});

// services returns the definitions of the protocol's services, and Health.
function services() {
  const set = fs.readFileSync(path.join(__dirname, 'provider.binpb'));
  const {v1} = grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(set, OPTIONS)).countersign.provider;
  return {...v1, Health: grpc.loadPackageDefinition(loader.fromJSON(HEALTH, OPTIONS)).grpc.health.v1.Health};
}

// plain converts a google.protobuf.Struct to an object.
function plain(struct) {
  const value = (v) => {
    switch (v.kind) {
      case 'struct_value': return plain(v.struct_value);
      case 'list_value': return (v.list_value.values || []).map(value);
      case 'null_value': case undefined: return null;
      default: return v[v.kind];
    }
  };
  // Out of a descriptor, names are as in the protocol's file, and a map is the list of entries that it is on the wire.
  return Object.fromEntries((struct?.fields || []).map(({key = '', value: v}) => [key, value(v || {})]));
}

// signRequest throws Invalid for what no host of ours sends.
function signRequest({request_id: id = '', csr = '', subject_id: subjectId = '', dns_names: dnsNames = [], ip_addresses: ipAddresses = [], ttl, token = '', requester = ''}) {
  checkToken(token);
  if (!csr.length || csr.length > MAX_CSR) throw new Invalid(`the CSR has ${csr.length} bytes, want 1 to ${MAX_CSR}`);
  if (dnsNames.length > MAX_NAMES || ipAddresses.length > MAX_NAMES) throw new Invalid(`the request has more than ${MAX_NAMES} names`);
  checkWords(token, subjectId, requester, ...dnsNames);
  const wrong = ipAddresses.find((ip) => !net.isIP(ip));
  if (wrong !== undefined) throw new Invalid(`"${cleanText(wrong, token)}" in the request is no IP address`);
  return hidden({id, csr: csr.toString(), subjectId, dnsNames, ipAddresses, ttl: milliseconds(ttl), requester}, {token});
}

function tokenRequest(message) {
  const {subject_token: subjectToken = '', subject_token_type: subjectTokenType = '', audience = '', resource = '', scopes = []} = message;
  const requestedType = message.requested_token_type || '';
  checkToken(subjectToken);
  if (!subjectToken || scopes.length > MAX_NAMES) throw new Invalid(`the request has no token, or more than ${MAX_NAMES} scopes`);
  checkWords(subjectToken, subjectTokenType, audience, resource, requestedType, ...scopes);
  return hidden({subjectTokenType, audience, resource, scopes, requestedType}, {subjectToken});
}

function jwtRequest({request_id: id = '', subject_id: subjectId = '', audiences = [], ttl, token = ''}) {
  checkToken(token);
  if (!audiences.length || audiences.length > MAX_AUDIENCES) throw new Invalid(`the request has ${audiences.length} audiences, want 1 to ${MAX_AUDIENCES}`);
  checkWords(token, subjectId, ...audiences);
  const lifetime = milliseconds(ttl);
  if (!subjectId || !lifetime) throw new Invalid('the request has no SPIFFE ID or no lifetime');
  return hidden({id, subjectId, audiences, ttl: lifetime}, {token});
}

function leaf({certificate = ''}) {
  if (!certificate.length || certificate.length > MAX_CSR) throw new Invalid(`the certificate has ${certificate.length} bytes, want 1 to ${MAX_CSR}`);
  return certificate.toString();
}

// hidden adds what console.log must not show.
function hidden(request, secrets) {
  for (const [key, value] of Object.entries(secrets)) Object.defineProperty(request, key, {value});
  return Object.freeze(request);
}

function milliseconds(duration) {
  const length = duration ? Number(duration.seconds || 0) * 1000 + (duration.nanos || 0) / 1e6 : 0;
  if (length < 0) throw new Invalid('the lifetime in the request is negative');
  return length || undefined;
}

function checkToken(token) {
  if (token.length > MAX_TOKEN || /\p{Cc}/u.test(token)) throw new Invalid(`the token has more than ${MAX_TOKEN} bytes, or control characters`);
}

function checkWords(token, ...words) {
  const wrong = words.find((word) => word.length > MAX_WORD || /\p{Cc}/u.test(word));
  if (wrong !== undefined) throw new Invalid(`"${cleanText(wrong, token)}" in the request does not have at most ${MAX_WORD} printable bytes`);
}

function pem(text, what, least = 1, most = MAX_PEM) {
  const bytes = Buffer.from(text ?? '');
  if (bytes.length < least || bytes.length > most) throw new Internal(`the CA's ${what} have ${bytes.length} bytes, want ${least} to ${most}`);
  return bytes;
}

const lists = (reply) => pem(reply, 'revocation lists', 1, MAX_LISTS);

function jwt(reply) {
  if (typeof reply !== 'string' || !reply || reply.length > MAX_JWT) throw new Internal(`signJwt returned no text of 1 to ${MAX_JWT} bytes`);
  return reply;
}

// keys returns a JWK set, which may be given as text or as an object.
function keys(set) {
  const text = typeof set === 'string' || set instanceof Uint8Array ? set : JSON.stringify(set);
  return pem(text, 'JWT keys');
}

const certificate = (reply) => ({chain: pem(reply?.chain, 'certificates'), roots: pem(reply?.roots, 'roots', 0)});

function exchanged(reply) {
  if (!reply?.accessToken) throw new Internal('exchangeToken returned no accessToken');
  const out = {access_token: reply.accessToken, issued_token_type: reply.issuedType};
  if (reply.expiry) out.expiry = span(reply.expiry.getTime());
  return out;
}

function renewal(reply) {
  if (!(reply?.start < reply?.end)) throw new Internal('renewalInfo returned no window that ends after its start');
  const out = {window_start: span(reply.start.getTime()), window_end: span(reply.end.getTime()), explanation_url: reply.explanationUrl};
  if (reply.retryAfter) out.retry_after = span(reply.retryAfter);
  return out;
}

// span returns milliseconds as a Duration, or those of an epoch as a Timestamp.
function span(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  return {seconds, nanos: Math.floor((milliseconds - seconds * 1000) * 1e6)};
}

// status returns what gRPC sends of an error, with ErrorInfo and RetryInfo.
function status(error, secret) {
  const {code, reason} = error.constructor;
  const message = cleanText(error.message, secret);
  const any = (name, value) => ({type_url: `type.googleapis.com/google.rpc.${name}`, value: DETAILS.lookupType(name).encode(value).finish()});
  const details = [any('ErrorInfo', {reason, domain: 'countersign.dev'})];
  if (error.retryAfter >= 0) {
    details.push(any('RetryInfo', {retryDelay: span(error.retryAfter)}));
  }
  const metadata = new grpc.Metadata();
  metadata.set('grpc-status-details-bin', Buffer.from(DETAILS.lookupType('Status').encode({code, message, details}).finish()));
  return {code, details: message, metadata};
}

module.exports = {
  services, plain, signRequest, tokenRequest, jwtRequest, certificate, leaf, exchanged, renewal, pem, lists, jwt, keys, status,
};
