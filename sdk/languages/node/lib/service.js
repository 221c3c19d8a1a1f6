// The services of one provider, over its current authority.
'use strict';

const {Internal, Invalid, NotConfigured, ProviderError, Unavailable, cleanText} = require('./errors.js');
const settings = require('./settings.js');
const wire = require('./wire.js');

// The methods of an authority that are abilities, with the service of each.
const ABILITIES = {
  sign: ['CertificateAuthority', 'ABILITY_CERTIFICATE_AUTHORITY'],
  roots: ['RootSource', 'ABILITY_ROOT_SOURCE'],
  watchRoots: ['RootWatcher', 'ABILITY_ROOT_WATCHER'],
  exchangeToken: ['TokenExchanger', 'ABILITY_TOKEN_EXCHANGER'],
  renewalInfo: ['RenewalInfo', 'ABILITY_RENEWAL_INFO'],
  revocations: ['RevocationSource', 'ABILITY_REVOCATION_SOURCE'],
  signJwt: ['JwtSvid', 'ABILITY_JWT_SVID'],
  watchJwtKeys: ['JwtSvid', 'ABILITY_JWT_SVID'],
};

const NAME_MATCHES = {exact: 'NAME_MATCH_EXACT', 'trust-domain': 'NAME_MATCH_TRUST_DOMAIN', any: 'NAME_MATCH_ANY'};

// abilitiesOf returns the abilities among the methods of a class. A method that is none of them is
// an error, because a misspelled ability, or one of a later library, would be left out silently.
function abilitiesOf({prototype}) {
  const methods = new Set();
  for (let at = prototype; at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    for (const [name, {value}] of Object.entries(Object.getOwnPropertyDescriptors(at))) if (typeof value === 'function') methods.add(name);
  }
  for (const name of methods) {
    if (!(name in ABILITIES) && !['constructor', 'close'].includes(name) && !name.startsWith('_')) {
      throw new TypeError(`the method ${name} is not an ability of this library, which has ${Object.keys(ABILITIES).join(', ')}, ` +
        'and close: start the name of a helper with # or _');
    }
  }
  if (!methods.has('sign')) throw new TypeError('the class of the authority has no method sign');
  if (methods.has('signJwt') !== methods.has('watchJwtKeys')) throw new TypeError('the class of the authority needs both signJwt and watchJwtKeys, or neither');
  return Object.keys(ABILITIES).filter((name) => methods.has(name));
}

// Current is an authority and its calls in flight.
class Current {
  #calls = 0;
  #idle = () => {};
  #replaced = new AbortController();

  constructor(authority) {
    this.authority = authority;
    this.replaced = this.#replaced.signal;
  }

  async use(call) {
    this.#calls++;
    try {
      return await call(this.authority);
    } finally {
      if (!--this.#calls) this.#idle();
    }
  }

  // close closes the authority after its calls; watches end, and the host opens them again.
  async close() {
    this.#replaced.abort();
    if (this.#calls) await new Promise((done) => (this.#idle = done));
    try {
      await this.authority.close?.();
    } catch (error) {
      logBug('close', error);
    }
  }
}

class Service {
  #current = null;
  #configuring = Promise.resolve();

  constructor(name, version, authority) {
    Object.assign(this, {name, version, authority, schema: settings.schemaOf(authority.settings)});
    this.abilities = abilitiesOf(authority);
    const {nameMatch = 'exact'} = authority;
    if (!NAME_MATCHES[nameMatch]) throw new TypeError(`nameMatch is '${nameMatch}': want one of ${Object.keys(NAME_MATCHES).join(', ')}`);
  }

  // services names the services of this provider's abilities.
  get services() {
    return [...new Set(['Provider', ...this.abilities.map((method) => ABILITIES[method][0])])];
  }

  getMetadata() {
    const abilities = [...new Set(this.abilities.map((method) => ABILITIES[method][1]))];
    if (this.authority.namesFromRequest) abilities.push('ABILITY_NAMES_FROM_REQUEST');
    return {
      name: this.name, version: this.version, abilities,
      settings_schema: JSON.stringify(this.schema),
      fixed_lifetime: Boolean(this.authority.fixedLifetime),
      name_match: NAME_MATCHES[this.authority.nameMatch ?? 'exact'],
      needs_token: Boolean(this.authority.needsToken),
    };
  }

  async validate(request, call) {
    const values = wire.plain(request.settings);
    const faults = await this.#faults(values);
    const online = Boolean(request.online && this.authority.validateOnline && !faults.length);
    if (online) faults.push(...await caught(() => this.authority.validateOnline(settings.complete(this.schema, values), call)));
    return {online, diagnostics: faults.map(({message, pointer}) => ({severity: 'SEVERITY_ERROR', summary: cleanText(message), pointer}))};
  }

  // faults returns what is wrong with settings.
  async #faults(values) {
    const faults = settings.check(this.schema, values);
    return faults.length ? faults : caught(() => this.authority.validate?.(settings.complete(this.schema, values)));
  }

  // configure replaces the authority only on success: after a failure the earlier one stays.
  async configure(request) {
    const values = wire.plain(request.settings);
    const faults = await this.#faults(values);
    if (faults.length) throw new Invalid(faults.map(({message}) => message).join('; '));
    const mine = this.#configuring.then(() => this.#install(settings.complete(this.schema, values)));
    this.#configuring = mine.catch(() => {});
    await mine;
    return {};
  }

  async #install(checked) {
    const opened = this.authority.open ? await this.authority.open(checked) : new this.authority(checked);
    const old = this.#current;
    this.#current = new Current(opened);
    old?.close();
  }

  ready() {
    this.#configured();
    return {};
  }

  async csrSign(request, call) {
    const current = this.#configured();
    const asked = wire.signRequest(request);
    return wire.certificate(await current.use((authority) => authority.sign(asked, call)));
  }

  async getRoots(_, call) {
    return {roots: wire.pem(await this.#configured().use((authority) => authority.roots(call)), 'roots')};
  }

  async exchangeToken(request, call) {
    const current = this.#configured();
    const asked = wire.tokenRequest(request);
    return wire.exchanged(await current.use((authority) => authority.exchangeToken(asked, call)));
  }

  async getRenewalInfo(request, call) {
    const current = this.#configured();
    const certificate = wire.leaf(request);
    return wire.renewal(await current.use((authority) => authority.renewalInfo(certificate, call)));
  }

  async getRevocations(_, call) {
    return {lists: wire.lists(await this.#configured().use((authority) => authority.revocations(call)))};
  }

  async signJwt(request, call) {
    const current = this.#configured();
    const asked = wire.jwtRequest(request);
    return {svid: wire.jwt(await current.use((authority) => authority.signJwt(asked, call)))};
  }

  watchRoots(_, call, send) {
    return this.#watch('watchRoots', call, (value) => wire.pem(value, 'roots'), (roots) => send({roots}));
  }

  watchJwtKeys(_, call, send) {
    return this.#watch('watchJwtKeys', call, wire.keys, (jwks) => send({jwks}));
  }

  // watch sends each changed set that a method yields.
  async #watch(method, call, encode, send) {
    const current = this.#configured();
    const signal = AbortSignal.any([call.signal, current.replaced]);
    const ended = new Promise((done) => signal.addEventListener('abort', () => done({done: true}), {once: true}));
    await current.use(async (authority) => {
      const sets = authority[method]({signal})[Symbol.asyncIterator]();
      let sent = '';
      for (;;) {
        const {done, value} = await Promise.race([sets.next(), ended]);
        if (done) break;
        const set = encode(value);
        if (set.toString() !== sent) await Promise.race([send(set), ended]);
        sent = set.toString();
      }
      // Not awaited: a generator that hangs ends when its signal wakes it.
      Promise.resolve(sets.return?.()).catch((error) => logBug(method, error));
    });
    if (current.replaced.aborted) throw new Unavailable('the settings changed: watch again');
  }

  close() {
    const current = this.#current;
    this.#current = null;
    return current?.close();
  }

  #configured() {
    if (!this.#current) throw new NotConfigured('the provider is not configured yet');
    return this.#current;
  }
}

// caught returns an author's error as a list, and throws what is a bug.
async function caught(validate) {
  try {
    await validate();
    return [];
  } catch (error) {
    if (error instanceof ProviderError) return [error];
    throw error;
  }
}

// logBug says where a bug is. Its text may quote the request, so it stays out.
function logBug(method, error) {
  const frames = String(error?.stack).split('\n').filter((line) => /^ {4}at /.test(line)).slice(0, 10);
  console.error([`${method} failed: ${error?.name}`, ...frames].join('\n'));
}

// failure returns the status of what a method threw.
function failure(method, error, request) {
  if (!(error instanceof ProviderError)) {
    logBug(method, error);
    error = new Internal(`the provider failed: ${error?.name}; its log says where`);
  }
  return wire.status(error, request.token || request.subject_token);
}

// callOf returns what a method gets of a gRPC call: a signal of its end.
function callOf(call) {
  const controller = new AbortController();
  call.on('cancelled', () => controller.abort());
  return {signal: controller.signal};
}

const unary = (service, method) => async (call, done) => {
  try {
    done(null, await service[method](call.request, callOf(call)));
  } catch (error) {
    done(failure(method, error, call.request));
  }
};

const stream = (service, method) => async (call) => {
  const send = (message) => call.write(message) || new Promise((done) => call.once('drain', done));
  try {
    await service[method](call.request, callOf(call), send);
    call.end();
  } catch (error) {
    call.emit('error', failure(method, error, call.request));
  }
};

// handlers returns what a gRPC server serves for a definition of a service.
function handlers(service, definition) {
  return Object.fromEntries(Object.entries(definition).map(([name, {originalName, responseStream}]) =>
    [name, (responseStream ? stream : unary)(service, originalName)]));
}

module.exports = {Service, handlers, logBug};
