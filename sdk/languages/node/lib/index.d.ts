/** A certificate signing request. One that comes again with the same id is a retry. */
export interface SignRequest {
  /** A UUID. */
  readonly id: string;
  /** One PEM block CERTIFICATE REQUEST. */
  readonly csr: string;
  /** The SPIFFE ID that is asked for, or ''. */
  readonly subjectId: string;
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
  /** The lifetime that is asked for, in milliseconds; undefined: the CA's own. */
  readonly ttl?: number;
  /** The workload's bearer credential, or ''. Never log it. */
  readonly token: string;
  /** Who asks, as the host knows it, for the CA's audit log. Decide nothing by it. */
  readonly requester: string;
}

/** PEM: the leaf first, then each one's issuer, never the root. Leave out roots if only roots() tells them. */
export interface Certificate {
  chain: string | Uint8Array;
  roots?: string | Uint8Array;
}

/** A token exchange (RFC 8693). */
export interface TokenRequest {
  readonly subjectToken: string;
  readonly subjectTokenType: string;
  readonly audience: string;
  readonly resource: string;
  readonly scopes: readonly string[];
  readonly requestedType: string;
}

/** When a certificate had better be renewed (RFC 9773). */
export interface RenewalWindow {
  start: Date;
  end: Date;
  explanationUrl?: string;
  /** When to ask again, in milliseconds: 1 minute to 24 hours; undefined: 6 hours. */
  retryAfter?: number;
}

export interface Token {
  accessToken: string;
  issuedType?: string;
  /** When it ends; undefined: not known. */
  expiry?: Date;
}

/** A JWT-SVID to sign (SPIFFE's JWT-SVID standard). */
export interface JwtRequest {
  /** A UUID; a retry has the same. */
  readonly id: string;
  /** The SPIFFE ID that is the claim sub. */
  readonly subjectId: string;
  /** The claim aud: these and no others. */
  readonly audiences: readonly string[];
  /** The lifetime that is asked for, in milliseconds; the CA may give less. */
  readonly ttl: number;
  /** The workload's bearer credential, or ''. Never log it. */
  readonly token: string;
}

/** A JWK set (RFC 7517, section 5), as an object or as JSON. */
export type JwkSet = {keys: object[]} | string | Uint8Array;

/** Of one call: the signal aborts when the agent gives up. */
export interface Call {
  readonly signal: AbortSignal;
}

/**
 * A CA that was opened with its settings. Only sign is required; many calls run at the same time. Each public method is an ability:
 * serve refuses a class with any other, so start the name of a helper with # or _.
 */
export interface Authority {
  sign(request: SignRequest, call: Call): Certificate | Promise<Certificate>;
  /** The CA's roots now, PEM. */
  roots?(call: Call): string | Uint8Array | Promise<string | Uint8Array>;
  /** The roots now, and each later set. */
  watchRoots?(call: Call): AsyncIterable<string | Uint8Array>;
  exchangeToken?(request: TokenRequest, call: Call): Token | Promise<Token>;
  /** When a leaf (PEM) had better be renewed. */
  renewalInfo?(certificate: string, call: Call): RenewalWindow | Promise<RenewalWindow>;
  /**
   * The revocation lists that the CA publishes: PEM blocks X509 CRL, complete lists with nextUpdate, 3 MiB at most. Blocks
   * CERTIFICATE among them are intermediate CAs that signed one. Sign no list for each call: every change goes to every workload.
   */
  revocations?(call: Call): string | Uint8Array | Promise<string | Uint8Array>;
  /** Signs a JWT-SVID: a JWS in compact form of at most 16,384 bytes, whose kid is one of the published keys. Needs watchJwtKeys. */
  signJwt?(request: JwtRequest, call: Call): string | Promise<string>;
  /** The public keys that verify JWT-SVIDs now, and each later set: a key before it signs, and until its last token has expired. */
  watchJwtKeys?(call: Call): AsyncIterable<JwkSet>;
  /** Called after the last call. */
  close?(): void | Promise<void>;
}

/** The class of an authority. Its methods are its abilities. */
export interface AuthorityClass<S = any> {
  new (settings: S): Authority;
  prototype: Authority;
  settings?: Record<string, Field>;
  /** sign certifies the names of the request, whatever the CSR says. */
  namesFromRequest?: boolean;
  /** The CA chooses how long certificates live. The host's default; its operator may change it. */
  fixedLifetime?: boolean;
  /** How closely a certificate's names match the request: a SPIFFE ID of the trust domain, or any names. Default: exact. */
  nameMatch?: 'exact' | 'trust-domain' | 'any';
  /** The CA signs nothing without a token. */
  needsToken?: boolean;
  /** Opens the authority instead of new, where that must wait. */
  open?(settings: S): Authority | Promise<Authority>;
  /** Checks, without network, what types cannot say; throws Invalid. */
  validate?(settings: S): void;
  /** Asks the CA whether the settings work, and has nothing signed; throws an error of this module. */
  validateOnline?(settings: S, call: Call): void | Promise<void>;
}

/** Serves until the host goes away. The console's output reaches the host's log. */
export function serve(name: string, version: string, authority: AuthorityClass): void;

/** A setting. One without a default is required, unless it is optional. */
export interface Field { readonly schema: object; readonly optional: boolean }
export interface FieldOptions<T> {
  default?: T;
  optional?: boolean;
  /** Its value is never printed. */
  secret?: boolean;
}
/** How the address of a CA is written. */
export type AddressForm = 'host:port' | 'path' | 'url' | 'text';
/** address marks the setting that is the CA's address: an operator writes it as NAME://ADDRESS. */
export function string(description: string, options?: FieldOptions<string> & {enum?: string[]; address?: AddressForm}): Field;
export function integer(description: string, options?: FieldOptions<number>): Field;
export function number(description: string, options?: FieldOptions<number>): Field;
export function boolean(description: string, options?: FieldOptions<boolean>): Field;
/** A URL without user, query and fragment. The author gets it as text without a slash at its end. schemes: ['https'] by default. */
export function url(description: string, options?: FieldOptions<string> & {schemes?: string[]}): Field;
/** A duration such as 90s, 30m or 1h30m. The author gets milliseconds. */
export function duration(description: string, options?: FieldOptions<string>): Field;
/** The path of a file. The author gets a SettingFile. */
export function file(description: string, options?: FieldOptions<string>): Field;
/** A file that a setting names: a regular one of at most 1 MiB. */
export interface SettingFile {
  readonly path: string;
  /** Reads it; throws Unavailable. */
  read(): Buffer;
  /** Waits until it has another content than this one, and returns that; it looks each second, and passes over failures. */
  changed(content: Uint8Array, options?: {signal?: AbortSignal}): Promise<Buffer>;
}
export function list(item: Field, description: string, options?: FieldOptions<unknown[]>): Field;
export function object(fields: Record<string, Field>, description: string, options?: FieldOptions<object>): Field;

/** An error that is none of those below: the agent waits and tries again. The operator reads the text: no keys, no tokens. */
export class ProviderError extends Error {
  /** What the CA asked the agent to wait, in milliseconds. */
  retryAfter?: number;
  constructor(text: string, options?: {retryAfter?: number});
}
/** The request cannot be signed as it is, or a setting is wrong: the attempt ends. pointer is a JSON Pointer to the setting. */
export class Invalid extends ProviderError { constructor(text: string, pointer?: string); pointer: string }
/** The caller is not allowed this certificate: the attempt ends. */
export class Denied extends ProviderError {}
/** The token was not accepted: the agent reads it again and tries once more. */
export class Unauthenticated extends ProviderError {}
/** Too many requests, or an exhausted quota: the agent waits. */
export class RateLimited extends ProviderError {}
/** RateLimited, until so many milliseconds have passed. */
export class RetryAfter extends RateLimited { constructor(milliseconds: number, text: string) }
/** The CA cannot be reached or is not ready: the agent waits. */
export class Unavailable extends ProviderError {}
/**
 * The CA has the request and has not decided on it yet, as while a person has to approve it. The agent repeats
 * the request: after retryAfter, else within 10 minutes.
 */
export class Pending extends ProviderError {}
/** A conflict with another request: the agent waits. */
export class Aborted extends ProviderError {}
/** The CA or this provider failed: the agent waits. */
export class Internal extends ProviderError {}
/** There are no settings: the agent sends them and calls again. */
export class NotConfigured extends ProviderError {}

/**
 * The error that a CA's HTTP status other than 2xx stands for, 202 included: 202 Pending, 401 Unauthenticated, 403 Denied, 409
 * Aborted, 425 and 429 RateLimited, 500 Internal, 408 and other 5xx Unavailable, all else Invalid. With body, a status that calls the
 * request wrong counts as Unavailable if the body is not a JSON object: a proxy answered. retryAfter is the header of that name; text
 * is what the CA said, which must be clean: see cleanText.
 */
export function httpError(status: number, options?: {retryAfter?: string | null; body?: string; text?: string}): ProviderError;

/**
 * Finds the leaf with the key of a CSR in bags of PEM, the intermediates that lead from it to a root by their signatures, and the
 * roots: what sign returns. Bags have 64 certificates and 1 MiB at most. Throws Internal.
 */
export function certificateOf(csr: string, ...bags: (string | Uint8Array)[]): {chain: string; roots: string};
/** The self-signed CA certificates in bags of PEM. Throws Internal if there are none. */
export function rootsOf(...bags: (string | Uint8Array)[]): string;

/** Makes text of a CA safe for an error or a log: no tokens or pieces of them, no control characters, 256 bytes. */
export function cleanText(text: string, ...tokens: string[]): string;
