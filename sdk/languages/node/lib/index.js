// Write a Countersign provider: a class with one method that has a CSR signed.
//
//   class Acme {
//     static settings = {address: string('where the CA is, host:port')};
//     constructor(settings) {…}
//     async sign(request, {signal}) {… return {chain};}
//   }
//   serve('acme', '1.0.0', Acme);
//
// index.d.ts documents everything that is exported.
'use strict';

module.exports = {
  ...require('./errors.js'),
  ...require('./chain.js'),
  ...require('./http.js'),
  ...require('./settings.js').fields,
  serve: require('./host.js').serve,
};
