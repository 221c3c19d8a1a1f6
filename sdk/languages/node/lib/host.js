// How the process meets its host: proto/provider/PROTOCOL.md.
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const {format} = require('node:util');
const grpc = require('@grpc/grpc-js');
const {Service, handlers, logBug} = require('./service.js');
const wire = require('./wire.js');

const COOKIE = ['COUNTERSIGN_PROVIDER', 'b3f1c0de-6a52-4d0e-9c55-c0de5167ed01'];
const VARIABLES = [COOKIE[0], 'PLUGIN_PROTOCOL_VERSIONS', 'PLUGIN_UNIX_SOCKET_DIR', 'PLUGIN_CLIENT_CERT', 'COUNTERSIGN_BINARY',
  'COUNTERSIGN_LIFELINE_FD', 'COUNTERSIGN_CHANNEL_FD'];
const MAX_MESSAGE = 4 << 20;
const MAX_LINE = 6 << 10; // the host cuts a line of its log at 8 KiB
// Milliseconds: for the calls in flight at the end, then for the authority to close.
const GRACE = 4000;
const CLOSE_GRACE = 1000;

function serve(name, version, authority) {
  const env = Object.fromEntries(VARIABLES.map((key) => [key, process.env[key] || '']));
  for (const key of VARIABLES) delete process.env[key]; // not for programs that the author starts
  if (env[COOKIE[0]] !== COOKIE[1]) {
    fail(`${name} ${version} is a Countersign provider: a host such as \`countersign agent\` starts it, not you. ` +
      `To debug it, run \`countersign provider debug ${name}=PATH --insecure\`.`);
  }
  if (!env.PLUGIN_PROTOCOL_VERSIONS.split(',').includes('1')) {
    fail(`no common protocol version: ${name} ${version} has version 1, which the host does not`);
  }
  if (!env.COUNTERSIGN_LIFELINE_FD || !env.COUNTERSIGN_CHANNEL_FD) {
    fail(`${name} ${version} needs a Countersign host: this one passes no channel, as a stock go-plugin host does`);
  }
  const service = define(name, version, authority);
  logToHost();
  new net.Socket({fd: Number(env.COUNTERSIGN_LIFELINE_FD)}) // its start-up data has keys for other transports
    .on('close', () => process.exit(0)).on('error', () => {}).resume();

  const server = serverOf(service);
  process.on('SIGINT', () => {}); // ^C in a terminal reaches host and provider, and the host decides
  process.on('SIGTERM', () => end(server, service));
  // The channel is an established connection, and only the host has its other end: it needs no TLS.
  const channel = new net.Socket({fd: Number(env.COUNTERSIGN_CHANNEL_FD)});
  server.createConnectionInjector(grpc.ServerCredentials.createInsecure()).injectConnection(channel);
  fs.writeSync(1, `1|1|unix|fd:${env.COUNTERSIGN_CHANNEL_FD}|grpc|\n`);
}

// define ends the process with the text of what is wrong with the class.
function define(name, version, authority) {
  try {
    return new Service(name, version, authority);
  } catch (error) {
    return fail(`${name} ${version}: ${error.message}`);
  }
}

function serverOf(service) {
  const server = new grpc.Server({'grpc.max_receive_message_length': MAX_MESSAGE, 'grpc.max_send_message_length': MAX_MESSAGE});
  const defined = wire.services();
  for (const name of service.services) server.addService(defined[name].service, handlers(service, defined[name].service));
  server.addService(defined.Health.service, {Check: ({request}, done) =>
    (['', 'plugin'].includes(request.service || '') ? done(null, {status: 'SERVING'}) : done({code: grpc.status.NOT_FOUND, details: 'unknown service'}))});
  return server;
}

async function end(server, service) {
  const within = (work, time) => Promise.race([work, new Promise((done) => setTimeout(done, time))]);
  await within(new Promise((done) => server.tryShutdown(done)), GRACE);
  await within(service.close(), CLOSE_GRACE);
  process.exit(0);
}

// logToHost makes the console write hclog's JSON, a record a line, to standard error: standard
// output has the handshake line and nothing else.
function logToHost() {
  const write = (level) => (...args) => {
    let text = format(...args).slice(0, MAX_LINE);
    let line;
    while ((line = JSON.stringify({'@level': level, '@message': text})).length > MAX_LINE) text = text.slice(0, text.length / 2);
    process.stderr.write(`${line}\n`);
  };
  Object.assign(console, {log: write('info'), info: write('info'), debug: write('debug'), warn: write('warn'), error: write('error'), trace: write('debug')});
  process.stdout.write = process.stderr.write.bind(process.stderr);
  process.on('uncaughtException', (error) => {
    logBug('the provider', error);
    process.exit(1);
  });
}

function fail(text) {
  console.error(text);
  process.exit(1);
}

module.exports = {serve};
