'use strict';

const assert = require('node:assert');
const {X509Certificate} = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const {test} = require('node:test');
const {Invalid} = require('countersign-provider');
const {openAuthority, signRequest} = require('countersign-provider/testing');
const {Authority} = require('./authority.js');

test('the CA is yours', () => {
  for (const file of fs.readdirSync(__dirname)) {
    if (!file.endsWith('.js') || file.endsWith('.test.js')) continue;
    const code = fs.readFileSync(path.join(__dirname, file), 'utf8');
    const message = `${file}: the function open signs with a CA for tests, which no peer trusts: put your CA's client in its place (step 4 of docs/write-a-provider.md)`;
    assert.ok(!code.includes('countersign-provider/testing'), message);
  }
});

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
