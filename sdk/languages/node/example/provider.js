'use strict';

const {serve} = require('countersign-provider');
const {Authority} = require('./authority.js');

serve('acme', '0.1.0', Authority);
