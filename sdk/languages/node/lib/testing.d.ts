import {Authority, AuthorityClass, Certificate, JwtRequest, JwkSet, SignRequest} from './index';

/** A CA in memory or in a folder, for one trust domain if it is given one. Its root is root.pem in the folder, with root-key.pem; both are created if missing. */
export class CA {
  static open(options?: {dir?: string; trustDomain?: string}): Promise<CA>;
  roots(): string;
  sign(request: SignRequest): Promise<Certificate>;
  /** A revocation list without entries, made at open and valid for a week. */
  revocations(): string;
  /** Signs a JWT-SVID with a key that is made at open. */
  signJwt(request: JwtRequest): string;
  jwtKeys(): JwkSet;
}

/** Opens an authority with the settings of a configuration, or throws the first Invalid. */
export function openAuthority(authority: AuthorityClass, values: object): Promise<Authority>;

/** Returns a request for a SPIFFE ID, with a new key. */
export function signRequest(subjectId: string): Promise<SignRequest>;
