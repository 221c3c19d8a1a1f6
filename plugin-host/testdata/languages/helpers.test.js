// Tests of what the library has beside the protocol; run in a folder that has it installed.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const {webcrypto: crypto} = require('node:crypto');
const {test} = require('node:test');
const installed = require('node:module').createRequire(path.join(process.cwd(), 'x.js'));
installed('reflect-metadata');
const x509 = installed('@peculiar/x509');
const cp = installed('countersign-provider');
const {check, complete, schemaOf} = require(path.join(process.cwd(), 'countersign-provider/lib/settings.js'));

const P256 = {name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256'};
const newKey = () => crypto.subtle.generateKey(P256, true, ['sign', 'verify']);
const plain = (text) => text.replace(/\s/g, '');

const certify = async (subject, publicKey, issuer, signingKey, ca) => (await x509.X509CertificateGenerator.create({
  subject: `CN=${subject}`, issuer: `CN=${issuer}`, publicKey, signingKey, signingAlgorithm: P256, serialNumber: '0102',
  notBefore: new Date(Date.now() - 1000), notAfter: new Date(Date.now() + 3600_000), extensions: [new x509.BasicConstraintsExtension(ca)],
}, crypto)).toString('pem') + '\n';

test('a bag is put in order', async () => {
  const [a, b, c, d] = await Promise.all([newKey(), newKey(), newKey(), newKey()]);
  const root = await certify('root', a.publicKey, 'root', a.privateKey, true);
  const stranger = await certify('root', d.publicKey, 'root', d.privateKey, true);
  const intermediate = await certify('intermediate', b.publicKey, 'root', a.privateKey, true);
  const leaf = await certify('leaf', c.publicKey, 'intermediate', b.privateKey, false);
  const csr = (await x509.Pkcs10CertificateRequestGenerator.create({keys: c, signingAlgorithm: P256, name: 'CN=leaf'}, crypto)).toString('pem');

  let found = cp.certificateOf(csr, stranger + root, Buffer.from(leaf + intermediate + leaf));
  assert.equal(plain(found.chain), plain(leaf + intermediate));
  assert.equal(plain(found.roots), plain(root));
  found = cp.certificateOf(csr, intermediate + leaf);
  assert.equal(plain(found.chain), plain(leaf + intermediate));
  assert.equal(found.roots, '');
  assert.equal(plain(cp.rootsOf(intermediate + root)), plain(root));
  for (const bag of [intermediate, '', '-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n']) {
    assert.throws(() => cp.certificateOf(csr, bag), cp.Internal);
    assert.throws(() => cp.rootsOf(bag), cp.Internal);
  }
  assert.throws(() => cp.certificateOf('', root), cp.Invalid);
  assert.throws(() => cp.certificateOf('-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----', root), cp.Invalid);
});

test('each HTTP status has its reason', () => {
  for (const [status, body, want] of [
    [202, '', cp.Pending], [302, '', cp.Invalid], [400, '{}', cp.Invalid], [404, '<html>', cp.Unavailable], [404, '[]', cp.Unavailable],
    [404, undefined, cp.Invalid], [401, '', cp.Unauthenticated], [403, '', cp.Denied], [408, '', cp.Unavailable], [409, '', cp.Aborted],
    [425, '', cp.RateLimited], [429, '', cp.RateLimited], [500, '', cp.Internal], [503, '', cp.Unavailable],
  ]) assert.equal(cp.httpError(status, {body}).constructor, want, `${status} ${body}`);
});

test('Retry-After is seconds or a date', () => {
  const soon = new Date(Date.now() + 60_000).toUTCString();
  for (const [retryAfter, least, most] of [['7', 7000, 7000], ['2000000000', 86_400_000, 86_400_000], [soon, 55_000, 60_000]]) {
    const {retryAfter: wait} = cp.httpError(503, {retryAfter});
    assert.ok(wait >= least && wait <= most, `${retryAfter}: ${wait}`);
  }
  for (const retryAfter of ['', '-7', 'soon', '0', null, 'Sun, 06 Nov 1994 08:00:00 GMT']) assert.equal(cp.httpError(503, {retryAfter}).retryAfter, undefined);
});

test('settings are read from text', () => {
  const schema = schemaOf({url: cp.url('a', {schemes: ['https', 'http']}), wait: cp.duration('b', {default: '1h30m'}), file: cp.file('c', {optional: true})});
  const read = complete(schema, {url: 'http://ca/a/', file: '/dev/zero'});
  assert.deepEqual([read.url, read.wait, read.file.path], ['http://ca/a', 5_400_000, '/dev/zero']);
  assert.throws(() => read.file.read(), cp.Unavailable);
  for (const [key, value] of [['url', 'ftp://ca'], ['url', 'https://ca?x'], ['wait', '90'], ['wait', '-1s'], ['wait', '1d'], ['file', '']]) {
    const [fault] = check(schema, {url: 'https://ca', [key]: value});
    assert.match(fault?.message ?? '', new RegExp(`^the setting ${key} is "${value.replace('?', '\\?')}": want (a|the) .* such as `));
  }
  const [hidden] = check(schema, {url: 'https://me:sesame@ca'});
  assert.doesNotMatch(hidden.message, /sesame/);
});

test('a changed file is read', async (t) => {
  const folder = fs.mkdtempSync(path.join(require('node:os').tmpdir(), 'helpers-'));
  t.after(() => fs.rmSync(folder, {recursive: true}));
  const file = path.join(folder, 'file');
  const {file: setting} = complete(schemaOf({file: cp.file('c')}), {file});
  fs.writeFileSync(file, 'a');
  assert.equal(String(await setting.changed(Buffer.from(''))), 'a');
  const changed = setting.changed(Buffer.from('a'));
  fs.writeFileSync(file, 'b');
  assert.equal(String(await changed), 'b');
  await assert.rejects(setting.changed(Buffer.from('b'), {signal: AbortSignal.timeout(10)}), {name: 'AbortError'});
});
