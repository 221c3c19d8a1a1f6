// An SDS client on @grpc/grpc-js, for tests: `node client.js SOCKET`. It is told what to
// do by lines of JSON on its standard input,
//   {"open": "StreamSecrets"}, {"open": "DeltaSecrets"}   a new stream, the old one is cancelled
//   {"send": {…}}                                         a request as in sds.proto
// and tells what comes by lines of JSON on its standard output,
//   {"stream": 1, "response": {…, "secrets": [{"name", "version", "certificates", "keyFits"}]}}
//   {"stream": 1, "end": {"code", "details"}}
// where streams are numbered as they are opened. Keys stay in this process.
'use strict';

const crypto = require('crypto');
const path = require('path');
const readline = require('readline');
const grpc = require('@grpc/grpc-js');
const protobuf = require('protobufjs');

const root = new protobuf.Root().loadSync(path.join(__dirname, 'sds.proto'), {keepCase: true});
const service = root.lookupService('envoy.service.secret.v3.SecretDiscoveryService');
const Secret = service.lookupType('Secret');
const client = new grpc.Client(`unix:${process.argv[2]}`, grpc.credentials.createInsecure(), {
  'grpc.initial_reconnect_backoff_ms': 50,
  'grpc.max_reconnect_backoff_ms': 500,
});

let stream;
let opened = 0;

function open(name) {
  if (stream) stream.cancel();
  const method = service.methods[name].resolve();
  const encode = (request) => Buffer.from(method.resolvedRequestType.encode(request).finish());
  const decode = (bytes) => plain(method.resolvedResponseType, bytes);
  const address = `/${service.fullName.slice(1)}/${name}`;
  const number = ++opened;
  stream = client.makeBidiStreamRequest(address, encode, decode, new grpc.Metadata({waitForReady: true}));
  stream.on('data', (response) => tell({stream: number, response: summary(response)}));
  stream.on('error', ({code, details}) => tell({stream: number, end: {code, details}}));
}

// plain returns a message as an object with all its fields.
function plain(type, bytes) {
  return type.toObject(type.decode(bytes), {defaults: true, bytes: Buffer});
}

// summary has in the place of secrets what a test may know of them.
function summary({resources, ...rest}) {
  return {...rest, secrets: resources.map((r) => describe(r.resource ? r.resource.value : r.value, r))};
}

function describe(body, {version, name: announced}) {
  const {name, tls_certificate: pair, validation_context: roots} = plain(Secret, body);
  if (announced && announced !== name) throw new Error(`the resource ${announced} is the secret ${name}`);
  const source = pair ? pair.certificate_chain : roots.trusted_ca;
  const certificates = source.inline_bytes.toString();
  return {name, version, certificates, keyFits: Boolean(pair) && fits(certificates, pair.private_key.inline_bytes)};
}

function fits(certificate, key) {
  return new crypto.X509Certificate(certificate).checkPrivateKey(crypto.createPrivateKey(key));
}

function tell(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

readline.createInterface({input: process.stdin}).on('line', (line) => {
  const {open: method, send} = JSON.parse(line);
  if (method) open(method);
  if (send) stream.write(send);
}).on('close', () => process.exit(0));
