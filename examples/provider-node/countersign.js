// Everything that a provider in Node.js needs besides its CA: the handshake of
// proto/provider/PROTOCOL.md, the lifeline, and the services for one object.
//
//   serve('acme', '1.0.0', Acme)
//
// Acme.open(settings) opens the authority; its methods are sign(request) ->
// {chain, roots} and roots() -> PEM. Throw a Failure for errors. To use this file, copy
// it: it has no other dependencies in this repository.
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const COOKIE = ['COUNTERSIGN_PROVIDER', 'b3f1c0de-6a52-4d0e-9c55-c0de5167ed01'];
const MAX_MESSAGE = 4 << 20;

// Failure is an error whose text is for the operator: no keys, no tokens. pointer is
// a JSON pointer to the invalid setting.
class Failure extends Error {
  constructor(code, text, pointer = '') {
    super(text);
    this.code = code;
    this.pointer = pointer;
  }
}
const invalid = (text, pointer) => new Failure(grpc.status.INVALID_ARGUMENT, text, pointer);
const denied = (text) => new Failure(grpc.status.PERMISSION_DENIED, text);
const unavailable = (text) => new Failure(grpc.status.UNAVAILABLE, text);

// provider returns the services of one authority, which new settings replace.
function provider(name, version, authority) {
  let current = null;
  const configured = () => {
    if (!current) throw new Failure(grpc.status.FAILED_PRECONDITION, 'not configured');
    return current;
  };
  return {
    getMetadata: () => ({
      name, version, settingsSchema: JSON.stringify(authority.SCHEMA),
      abilities: ['ABILITY_CERTIFICATE_AUTHORITY', 'ABILITY_ROOT_SOURCE'],
    }),
    validate: ({settings}) => {
      try {
        authority.check(plain(settings));
        return {};
      } catch (fault) {
        if (!(fault instanceof Failure)) throw fault;
        return {diagnostics: [{severity: 'SEVERITY_ERROR', summary: fault.message, pointer: fault.pointer}]};
      }
    },
    configure: async ({settings}) => {
      // Replaced only on success: after a failure the earlier settings stay.
      current = await authority.open(plain(settings));
      return {};
    },
    ready: () => {
      configured();
      return {};
    },
    csrSign: (request) => configured().sign(request),
    getRoots: () => ({roots: configured().roots()}),
    check: () => ({status: 'SERVING'}),
  };
}

// plain converts a google.protobuf.Struct to an object.
function plain(struct) {
  const value = (v) => {
    switch (v.kind) {
      case 'structValue': return plain(v.structValue);
      case 'listValue': return (v.listValue.values || []).map(value);
      case 'nullValue': return null;
      default: return v[v.kind];
    }
  };
  return Object.fromEntries(Object.entries(struct?.fields || {}).map(([key, v]) => [key, value(v)]));
}

// unary converts a function that returns or throws to a gRPC handler.
const unary = (method) => async (call, done) => {
  try {
    done(null, await method(call.request));
  } catch (error) {
    if (error instanceof Failure) return done({code: error.code, details: error.message});
    console.error(`[ERROR] ${error.name}`); // a bug: its text may quote the request
    done({code: grpc.status.INTERNAL, details: `the provider failed: ${error.name}`});
  }
};

const HEALTH = {nested: {grpc: {nested: {health: {nested: {v1: {nested: {
  Health: {methods: {Check: {requestType: 'HealthCheckRequest', responseType: 'HealthCheckResponse'}}},
  HealthCheckRequest: {fields: {service: {type: 'string', id: 1}}},
  HealthCheckResponse: {
    fields: {status: {type: 'ServingStatus', id: 1}},
    nested: {ServingStatus: {values: {UNKNOWN: 0, SERVING: 1, NOT_SERVING: 2, SERVICE_UNKNOWN: 3}}},
  },
}}}}}}}};

// serve serves until the host goes away.
function serve(name, version, authority) {
  const env = process.env;
  if (env[COOKIE[0]] !== COOKIE[1]) fail(`countersign-provider-${name} is a provider: the agent starts it`);
  if (!(env.PLUGIN_PROTOCOL_VERSIONS || '').split(',').includes('1')) fail('the host does not speak version 1 of the protocol');
  const lifeline = new net.Socket({fd: Number(env.COUNTERSIGN_LIFELINE_FD)});
  lifeline.on('close', () => process.exit(0)).on('error', () => {}).resume();

  const server = new grpc.Server({'grpc.max_receive_message_length': MAX_MESSAGE});
  const methods = provider(name, version, authority);
  const handlers = Object.fromEntries(Object.entries(methods).map(([key, method]) => [key, unary(method)]));
  const options = {enums: String, longs: Number, oneofs: true};
  const file = path.join(__dirname, 'provider.proto');
  const v1 = grpc.loadPackageDefinition(loader.loadSync(file, options)).countersign.provider.v1;
  for (const one of [v1.Provider, v1.CertificateAuthority, v1.RootSource]) server.addService(one.service, handlers);
  const {Health} = grpc.loadPackageDefinition(loader.fromJSON(HEALTH, options)).grpc.health.v1;
  server.addService(Health.service, handlers);

  // The channel is an established connection, and only the host has its other end:
  // it needs no TLS.
  const channel = new net.Socket({fd: Number(env.COUNTERSIGN_CHANNEL_FD)});
  server.createConnectionInjector(grpc.ServerCredentials.createInsecure()).injectConnection(channel);
  fs.writeSync(1, `1|1|unix|fd:${env.COUNTERSIGN_CHANNEL_FD}|grpc|\n`);
  console.log = console.info = console.error; // prints go to the log
}

function fail(text) {
  console.error(text);
  process.exit(1);
}

module.exports = {serve, Failure, invalid, denied, unavailable};
