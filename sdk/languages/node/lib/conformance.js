// Runs the conformance suite on a provider's program.
'use strict';

const {execFile} = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const {promisify} = require('node:util');

const MAX_OUTPUT = 16 << 20;

// conformance returns what `countersign provider test` prints, or throws an error with that.
async function conformance(program, {kit, settings} = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'conformance-')); // of mode 0700
  try {
    const args = ['provider', 'test', program, '--quiet'];
    if (kit) args.push('--kit', kit);
    if (settings) {
      const file = path.join(folder, 'settings.json');
      fs.writeFileSync(file, JSON.stringify(settings), {mode: 0o600});
      args.push('--settings', file);
    }
    const {stdout} = await promisify(execFile)('countersign', args, {maxBuffer: MAX_OUTPUT});
    return stdout;
  } catch (error) {
    if (error.code === 'ENOENT') throw new Error('failed to run countersign: put it in a folder of the PATH');
    throw new Error(`the conformance suite failed:\n${error.stdout}${error.stderr}`);
  } finally {
    fs.rmSync(folder, {recursive: true});
  }
}

module.exports = {conformance};
