// The certificates of a CA in the order of a reply.
'use strict';

const {X509Certificate} = require('node:crypto');
const {Internal, Invalid} = require('./errors.js');

const MAX_BYTES = 1 << 20;
const MAX_CERTIFICATES = 64;
const MAX_LENGTH = 10;
const MAX_CHECKS = 256;
const PEM = /-----BEGIN ([A-Z0-9 ]+)-----([\sA-Za-z0-9+/=]+)-----END \1-----/g;

function certificateOf(csr, ...bags) {
  const key = keyOf(csr);
  const certificates = parse(bags);
  const leaves = certificates.filter((c) => !c.ca && key.equals(c.publicKey.export({type: 'spki', format: 'der'})));
  if (!leaves.length) throw new Internal(`none of the CA's ${certificates.length} certificates has the key of the CSR`);
  leaves.sort((a, b) => new Date(b.validTo) - new Date(a.validTo));
  const {way, roots} = climb(leaves[0], certificates);
  return {chain: encode(way), roots: encode(roots)};
}

function rootsOf(...bags) {
  const certificates = parse(bags);
  const roots = certificates.filter(isRoot);
  if (!roots.length) throw new Internal(`none of the CA's ${certificates.length} certificates is a root`);
  return encode(roots);
}

// climb goes breadth first, so that the first root ends the shortest way.
function climb(leaf, certificates) {
  const seen = new Set([leaf]);
  const ways = [[leaf]];
  const roots = [];
  let way;
  let longest = ways[0];
  let checks = 0;
  for (const at of ways) {
    if (at.length > longest.length) longest = at;
    const last = at[at.length - 1];
    for (const issuer of certificates) {
      if (seen.has(issuer) || !issuer.ca || issuer.subject !== last.issuer) continue;
      if (++checks > MAX_CHECKS) throw new Internal('the CA\'s certificates have too many ways to a root');
      if (!last.verify(issuer.publicKey)) continue;
      seen.add(issuer);
      if (isRoot(issuer)) {
        roots.push(issuer);
        way ??= at;
      } else if (at.length < MAX_LENGTH) {
        ways.push([...at, issuer]);
      }
    }
  }
  return {way: way ?? longest, roots};
}

const isRoot = (c) => c.ca && c.subject === c.issuer && c.verify(c.publicKey);
const encode = (certificates) => certificates.map((c) => c.toString()).join('');

// parse returns each certificate once.
function parse(bags) {
  const text = bags.map(String).join('\n');
  if (text.length > MAX_BYTES) throw new Internal(`the CA's certificates have more than ${MAX_BYTES} bytes`);
  const blocks = new Set([...text.matchAll(PEM)].filter(([, type]) => type === 'CERTIFICATE').map(([block]) => block));
  if (blocks.size > MAX_CERTIFICATES) throw new Internal(`the CA returned more than ${MAX_CERTIFICATES} certificates`);
  try {
    return [...blocks].map((block) => new X509Certificate(block));
  } catch {
    throw new Internal('the CA returned a certificate that cannot be read');
  }
}

// keyOf returns the SubjectPublicKeyInfo of a CSR (RFC 2986, section 4.1): the third element of the
// first element of a sequence.
function keyOf(csr) {
  try {
    const der = Buffer.from([...String(csr).matchAll(PEM)][0][2], 'base64');
    const info = element(der, element(der, 0).start);
    const version = element(der, info.start);
    const subject = element(der, version.end);
    const key = element(der, subject.end);
    if (der[subject.end] !== 0x30 || key.end > info.end) throw new RangeError();
    return der.subarray(subject.end, key.end);
  } catch {
    throw new Invalid('the CSR cannot be read');
  }
}

// element returns where the content of a DER element starts and ends.
function element(der, at) {
  let length = der.readUInt8(at + 1);
  let start = at + 2;
  if (length & 0x80) {
    const size = length & 0x7f;
    length = der.readUIntBE(start, size);
    start += size;
  }
  if (start + length > der.length) throw new RangeError();
  return {start, end: start + length};
}

module.exports = {certificateOf, rootsOf};
