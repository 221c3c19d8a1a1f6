// A CA in memory or in a folder, to try a provider with before there is a real one. It needs the
// packages @peculiar/x509 and reflect-metadata.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const {webcrypto: crypto, generateKeyPairSync, randomBytes, sign} = require('node:crypto');
require('reflect-metadata');
const x509 = require('@peculiar/x509');
const {Denied, Invalid} = require('./errors.js');

const HOUR = 3600_000;
const MAX_ANSWERS = 1024;
const P256 = {name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256'};
x509.cryptoProvider.set(crypto);

class CA {
  #answers = new Map(); // a retry gets the same certificate
  #root;
  #key;
  #trustDomain;
  #lists;
  #jwt = generateKeyPairSync('ec', {namedCurve: 'P-256'});

  static async open({dir = '', trustDomain = ''} = {}) {
    try {
      const ca = new CA();
      Object.assign(ca, await (dir ? stored(dir) : makeRoot()));
      ca.#trustDomain = trustDomain;
      ca.#lists = await emptyList(ca.#root, ca.#key);
      return ca;
    } catch (error) {
      throw new Invalid(`the folder of the CA: ${error.code || error.name} with root-key.pem or root.pem`);
    }
  }

  set root(root) { this.#root = root; }
  set key(key) { this.#key = key; }

  roots() {
    return pem(this.#root);
  }

  async sign(request) {
    const id = `${request.id}\n${request.csr}`;
    let chain = this.#answers.get(id);
    if (!chain) {
      chain = pem(await this.#issue(request));
      if (this.#answers.size >= MAX_ANSWERS) this.#answers.delete(this.#answers.keys().next().value);
      this.#answers.set(id, chain);
    }
    return {chain, roots: this.roots()};
  }

  revocations() {
    return this.#lists;
  }

  jwtKeys() {
    return {keys: [{...this.#jwt.publicKey.export({format: 'jwk'}), kid: 'test', use: 'jwt-svid'}]};
  }

  signJwt({subjectId, audiences, ttl}) {
    this.#checkId(subjectId);
    const now = Math.floor(Date.now() / 1000);
    const claims = {sub: subjectId, aud: audiences, iat: now, exp: now + Math.floor(ttl / 1000)};
    const text = [{alg: 'ES256', kid: 'test', typ: 'JWT'}, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    const key = {key: this.#jwt.privateKey, dsaEncoding: 'ieee-p1363'};
    return `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`;
  }

  #checkId(subjectId) {
    if (this.#trustDomain && subjectId && !subjectId.startsWith(`spiffe://${this.#trustDomain}/`)) {
      throw new Denied(`the SPIFFE ID is outside the trust domain ${this.#trustDomain}`);
    }
  }

  // names returns those of the request, which count, whatever the CSR says.
  #names({subjectId, dnsNames, ipAddresses}) {
    this.#checkId(subjectId);
    const typed = (type, values) => values.map((value) => ({type, value}));
    const names = [...typed('url', subjectId ? [subjectId] : []), ...typed('dns', dnsNames), ...typed('ip', ipAddresses)];
    if (!names.length) throw new Invalid('the request has no names');
    return names;
  }

  async #issue(request) {
    return x509.X509CertificateGenerator.create({
      serialNumber: serial(), issuer: this.#root.subject, subject: '', signingKey: this.#key, signingAlgorithm: P256,
      publicKey: (await read(request.csr)).publicKey,
      notBefore: new Date(Date.now() - 60_000), notAfter: new Date(Date.now() + (request.ttl || HOUR)),
      extensions: [
        new x509.SubjectAlternativeNameExtension(this.#names(request), true), // RFC 5280, 4.2.1.6: the subject is empty
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth]),
      ],
    }, crypto);
  }
}

async function read(pem) {
  let csr;
  try {
    csr = new x509.Pkcs10CertificateRequest(x509.PemConverter.decodeFirst(pem));
  } catch {
    throw new Invalid('the CSR is no PEM CERTIFICATE REQUEST');
  }
  if (!await csr.verify(crypto)) throw new Invalid('the CSR is not signed by its own key');
  return csr;
}

async function makeRoot() {
  const keys = await crypto.subtle.generateKey(P256, true, ['sign', 'verify']);
  const root = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: serial(), name: 'CN=CA for tests', keys, signingAlgorithm: P256,
    notBefore: new Date(Date.now() - HOUR), notAfter: new Date(Date.now() + 24 * 3650 * HOUR),
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
    ],
  }, crypto);
  return {key: keys.privateKey, root};
}

// emptyList returns a revocation list of a week without entries. Its number is the time.
async function emptyList(root, key) {
  const now = Date.now();
  const list = await x509.X509CrlGenerator.create({
    issuer: root.subject, signingKey: key, signingAlgorithm: P256, thisUpdate: new Date(now - 60_000), nextUpdate: new Date(now + 7 * 24 * HOUR),
    extensions: [new x509.Extension('2.5.29.20', false, Buffer.from(`0206${now.toString(16).padStart(12, '0')}`, 'hex'))],
  }, crypto);
  return `${x509.PemConverter.encode(list.rawData, 'X509 CRL')}\n`;
}

async function stored(dir) {
  const [keyFile, rootFile] = ['root-key.pem', 'root.pem'].map((name) => path.join(dir, name));
  if (!fs.existsSync(rootFile)) {
    const {key, root} = await makeRoot();
    const pkcs8 = await crypto.subtle.exportKey('pkcs8', key);
    // The key first, with mode 0600: an existing root always has its key.
    fs.writeFileSync(keyFile, x509.PemConverter.encode(pkcs8, 'PRIVATE KEY'), {mode: 0o600});
    fs.writeFileSync(rootFile, pem(root));
  }
  const pkcs8 = x509.PemConverter.decodeFirst(fs.readFileSync(keyFile, 'utf8'));
  return {
    key: await crypto.subtle.importKey('pkcs8', pkcs8, P256, false, ['sign']),
    root: new x509.X509Certificate(fs.readFileSync(rootFile, 'utf8')),
  };
}

function serial() {
  const bytes = randomBytes(16);
  bytes[0] = bytes[0] & 0x7f | 0x40; // positive, and always of the same length
  return bytes.toString('hex');
}

const pem = (certificate) => `${certificate.toString('pem')}\n`;

module.exports = {CA};
