'use strict';

const assert = require('node:assert');
const {X509Certificate} = require('node:crypto');
const {test} = require('node:test');
const {Invalid} = require('countersign-provider');
const {openAuthority, signRequest} = require('countersign-provider/testing');
const {Authority} = require('./authority.js');

test('a certificate has the requested name and leads to the root', async () => {
  const authority = await openAuthority(Authority, {});
  const call = {signal: AbortSignal.timeout(5000)};
  const {chain} = await authority.sign(await signRequest('spiffe://example.org/web'), call);
  const leaf = new X509Certificate(chain);
  assert.equal(leaf.subjectAltName, 'URI:spiffe://example.org/web');
  assert.ok(leaf.verify(new X509Certificate(await authority.roots(call)).publicKey));
});

test('wrong settings are refused', async () => {
  for (const settings of [{dri: 'x'}, {dir: 7}]) await assert.rejects(openAuthority(Authority, settings), Invalid);
});
