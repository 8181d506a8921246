//! Digests and signatures of requests by OpenSSL, which is linked for TLS already. `object_store` would bring a second library.

use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use object_store::{Error, Result};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::sha::Sha256;

/// What signs requests and digests their bodies.
#[derive(Debug)]
pub(super) struct OpenSsl;

impl CryptoProvider for OpenSsl {
    fn digest(&self, algorithm: DigestAlgorithm) -> Result<Box<dyn DigestContext>> {
        let DigestAlgorithm::Sha256 = algorithm else { return Err(unknown(&algorithm)) };
        Ok(Box::new(Digest { begun: Sha256::new(), digest: [0; 32] }))
    }

    fn hmac(&self, algorithm: DigestAlgorithm, secret: &[u8]) -> Result<Box<dyn HmacContext>> {
        let DigestAlgorithm::Sha256 = algorithm else { return Err(unknown(&algorithm)) };
        let key = PKey::hmac(secret).map_err(failed)?;
        Ok(Box::new(Hmac { key, text: Vec::new(), code: Vec::new() }))
    }

    /// S3 has no such signatures; Google's store has.
    fn sign(&self, algorithm: SigningAlgorithm, _: &[u8]) -> Result<Box<dyn Signer>> {
        Err(unknown(&algorithm))
    }
}

struct Digest {
    begun: Sha256,
    digest: [u8; 32],
}

impl DigestContext for Digest {
    fn update(&mut self, data: &[u8]) {
        self.begun.update(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        self.digest = self.begun.clone().finish();
        Ok(&self.digest)
    }
}

struct Hmac {
    key: PKey<Private>,
    /// A signature's text is kept until its end, where an error can be told. It is as long as a line.
    text: Vec<u8>,
    code: Vec<u8>,
}

impl HmacContext for Hmac {
    fn update(&mut self, data: &[u8]) {
        self.text.extend_from_slice(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        let code = openssl::sign::Signer::new(MessageDigest::sha256(), &self.key)
            .and_then(|mut signer| signer.sign_oneshot_to_vec(&self.text));
        self.code = code.map_err(failed)?;
        Ok(&self.code)
    }
}

fn failed(error: ErrorStack) -> Error {
    Error::Generic { store: "OpenSSL", source: error.into() }
}

fn unknown(algorithm: &dyn std::fmt::Debug) -> Error {
    Error::NotSupported { source: format!("{algorithm:?} is not what S3 asks for").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn digest(parts: &[&[u8]]) -> String {
        let mut digest = OpenSsl.digest(DigestAlgorithm::Sha256).unwrap();
        parts.iter().for_each(|part| digest.update(part));
        hex(digest.finish().unwrap())
    }

    fn hmac(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut hmac = OpenSsl.hmac(DigestAlgorithm::Sha256, secret).unwrap();
        parts.iter().for_each(|part| hmac.update(part));
        hmac.finish().unwrap().to_vec()
    }

    /// "Example: GET Object" of "Signature Calculations for the Authorization Header" in Amazon's S3 API reference.
    #[test]
    fn amazons_published_request_gets_the_signature_that_is_published_with_it() {
        let nothing = digest(&[]);
        let request = format!(
            "GET\n/test.txt\n\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\nx-amz-content-sha256:{nothing}\n\
             x-amz-date:20130524T000000Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n{nothing}"
        );
        let of_request = digest(&[request.as_bytes()]);
        assert_eq!(of_request, "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
        let to_sign =
            format!("AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n{of_request}");
        let mut key = b"AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_vec();
        for part in ["20130524", "us-east-1", "s3", "aws4_request"] {
            key = hmac(&key, &[part.as_bytes()]);
        }
        let signature = hex(&hmac(&key, &[to_sign.as_bytes()]));
        assert_eq!(signature, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    }

    #[test]
    fn parts_count_as_one_text_and_a_result_can_be_asked_for_twice() {
        let (whole, parts): (&[&[u8]], &[&[u8]]) = (&[b"abc"], &[b"a", b"", b"bc"]);
        assert_eq!(digest(parts), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest(whole), digest(parts));
        assert_eq!(hmac(b"key", whole), hmac(b"key", parts));
        let mut digest = OpenSsl.digest(DigestAlgorithm::Sha256).unwrap();
        let first = digest.finish().unwrap().to_vec();
        assert_eq!(digest.finish().unwrap(), first);
    }

    #[test]
    fn what_s3_does_not_ask_for_is_refused() {
        assert!(OpenSsl.sign(SigningAlgorithm::RS256, b"").is_err());
    }
}
