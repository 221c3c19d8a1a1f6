'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const {test} = require('node:test');
const {conformance} = require('countersign-provider/conformance');

/**
 * Starts a server in the place of your CA, so that the tests need no network, and returns the settings that lead to it; t.after
 * stops it. Without settings, the suite uses those of kit.yaml.
 */
async function testCA(t) {
  return undefined;
}

// Runs the suite on the program, once your CA's client is in authority.js.
test('conformance', async (t) => {
  noStandIn();
  const options = {kit: path.join(__dirname, 'kit.yaml'), settings: await testCA(t)};
  t.diagnostic(await conformance(path.join(__dirname, 'countersign-provider-acme'), options));
});

function noStandIn() {
  for (const file of fs.readdirSync(__dirname)) {
    if (!file.endsWith('.js') || file.endsWith('.test.js')) continue;
    const code = fs.readFileSync(path.join(__dirname, file), 'utf8');
    const message = `${file}: the function open signs with a CA for tests, which no peer trusts: put your CA's client in its place (step 4 of docs/write-a-provider.md)`;
    assert.ok(!code.includes('countersign-provider/testing'), message);
  }
}
