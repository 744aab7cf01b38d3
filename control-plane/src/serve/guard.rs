//! Runs before every call: identifies the caller, checks its role, and marks its connection as busy.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tracing::info;

use super::admission::Caller;
use super::roles::allowed;

/// Wraps a service in a [`Guarded`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard;

/// A service behind the guard.
#[derive(Clone, Debug)]
pub(super) struct Guarded<S>(S);

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded(inner)
    }
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        let Some(caller) = request.extensions().get::<Caller>() else {
            // Every connection of this server has one.
            return Either::Left(ready(Ok(
                Status::unauthenticated("the caller has no known identity").into_http()
            )));
        };
        if let Some(identity) = caller.identity()
            && !allowed(identity.role, path)
        {
            info!(%identity, address = %caller.address(), path, "a call is refused");
            let refused = Status::permission_denied(format!("a {} may not call {path}", identity.role));
            return Either::Left(ready(Ok(refused.into_http())));
        }
        let call = Arc::new(caller.call());
        request.extensions_mut().insert(call);
        Either::Right(self.0.call(request))
    }
}
