#!/usr/bin/env -S node --preserve-symlinks-main
// A provider with every ability, whose errors tests ask for by SPIFFE ID.
'use strict';

const beside = require('node:module').createRequire(process.env.COUNTERSIGN_BINARY || __filename);
const cp = beside('countersign-provider');
const {CA} = beside('countersign-provider/testing');
const {setTimeout: sleep} = require('node:timers/promises');

const ERRORS = {
  'invalid': cp.Invalid, 'denied': cp.Denied, 'unauthenticated': cp.Unauthenticated, 'rate-limited': cp.RateLimited,
  'unavailable': cp.Unavailable, 'pending': cp.Pending, 'aborted': cp.Aborted, 'internal': cp.Internal, 'unknown': cp.ProviderError,
  'not-configured': cp.NotConfigured,
};

class Full {
  static namesFromRequest = true;
  static fixedLifetime = true;
  static nameMatch = 'trust-domain';
  static settings = {
    zone: cp.string('zone of the CA', {default: 'a', enum: ['a', 'b']}),
    pools: cp.list(cp.string('a pool'), 'pools to sign from', {default: []}),
    tries: cp.integer('how often to ask', {default: 3}),
    account: cp.object({name: cp.string('name of the account'), password: cp.string('its password', {secret: true})}, 'account at the CA', {optional: true}),
  };

  static validate({tries}) {
    if (tries < 1) throw new cp.Invalid(`the setting tries is ${tries}: want 1 or more`, '/tries');
  }

  static async validateOnline({zone}) {
    if (zone === 'b') throw new cp.Unavailable('the CA of zone b is away');
  }

  static async open({zone}) {
    return Object.assign(new Full(), {zone, ca: await CA.open(), issued: new Set()});
  }

  async sign(request, {signal}) {
    const word = request.subjectId.split('/').pop();
    if (ERRORS[word]) throw new ERRORS[word](`${word} was asked for with ${request.token}`);
    switch (word) {
      case 'retry-after': throw new cp.RetryAfter(90_000, 'come back later');
      case 'requester': throw new cp.Denied(`asked by ${request.requester}`);
      case 'bug': throw new TypeError(request.token);
      case 'hang':
        console.log('the call began');
        await sleep(3600_000, null, {signal}).finally(() => console.log('the call was cancelled'));
    }
    const signed = await this.ca.sign(request);
    this.issued.add(signed.chain.replace(/\s/g, ''));
    return signed;
  }

  roots() {
    return this.ca.roots();
  }

  async *watchRoots({signal}) {
    for (;;) {
      yield this.ca.roots();
      await sleep(50, null, {signal}).catch(() => {});
    }
  }

  async exchangeToken(request) {
    if (request.subjectToken === 'stranger') throw new cp.Unauthenticated(`unknown token ${request.subjectToken}`);
    return {accessToken: `exchanged-for-${request.audience}`, expiry: new Date(Date.now() + 3600_000)};
  }

  async renewalInfo(certificate) {
    if (!this.issued.has(certificate.replace(/\s/g, ''))) throw new cp.Invalid('no such certificate');
    const at = (minutes) => new Date(Date.now() + minutes * 60_000);
    return {start: at(20), end: at(30), explanationUrl: 'https://ca.example.org/why', retryAfter: 3600_000};
  }

  revocations() {
    return this.ca.revocations();
  }

  signJwt(request) {
    if (ERRORS[request.subjectId.split('/').pop()]) throw new cp.Denied(`denied with ${request.token}`);
    return this.ca.signJwt(request);
  }

  async *watchJwtKeys({signal}) {
    for (;;) {
      yield this.ca.jwtKeys();
      await sleep(50, null, {signal}).catch(() => {});
    }
  }

  close() {
    console.log('closed zone', this.zone);
  }
}

cp.serve('full', '1.2.3', Full);
