'use strict';

const {string} = require('countersign-provider');
const {CA} = require('countersign-provider/testing');

/** A CA that was opened with its settings. */
class Authority {
  /** What a configuration says below the provider's settings. */
  static settings = {
    dir: string('folder of root.pem and root-key.pem, which are created if missing; empty: in memory', {default: '', address: 'path'}),
    trust_domain: string('trust domain of the SPIFFE IDs to sign; empty: any', {default: ''}),
  };

  static async open(settings) {
    const authority = new Authority();
    authority.ca = await CA.open({dir: settings.dir, trustDomain: settings.trust_domain}); // put your CA's client in its place
    return authority;
  }

  /**
   * Has a request signed. What an error means to the agent is said by its class: Denied, Unavailable, RetryAfter and so on, of
   * countersign-provider.
   * @param {import('countersign-provider').SignRequest} request
   * @param {import('countersign-provider').Call} call
   */
  sign(request, {signal}) {
    signal.throwIfAborted();
    return this.ca.sign(request);
  }

  /** Returns the CA's roots, PEM; leave it out where each reply has them. */
  roots() {
    return this.ca.roots();
  }
}

module.exports = {Authority};
