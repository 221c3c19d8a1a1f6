import {Certificate, JwtRequest, JwkSet, SignRequest} from './index';

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
